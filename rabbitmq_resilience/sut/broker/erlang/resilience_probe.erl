%% Try to connect to a port many times, to measure packet loss and delay on the way.
%%
%% Arguments: a port, the number of attempts, how many at once for each address, how long to wait for each (ms), the
%% answers that count, and addresses. The kernel answers at once. "refused": only refusals count, for a closed port.
%% "any": accepted connections count too, for a port that may be open. Each answer is one line on standard output: the
%% address and the microseconds that it took. An attempt has no line if it or its answer was lost. The kernel repeats a
%% lost attempt only after a second (RFC 6298, 2.1), so wait less.
-module(resilience_probe).

-export([main/1]).

main([Port, Count, AtOnce, WaitMs, Counts | Hosts]) ->
    [To, Times, Knockers, Ms] = [list_to_integer(Number) || Number <- [Port, Count, AtOnce, WaitMs]],
    Me = self(),
    Knock = fun(Host, Shares) ->
        {ok, Address} = inet:parse_address(Host),
        [Me ! {knocked, Host, knock(Address, To, Ms, Counts)} || _ <- Shares]
    end,
    [spawn_link(fun() -> Knock(Host, lists:seq(First, Times, Knockers)) end)
     || Host <- Hosts, First <- lists:seq(1, min(Knockers, Times))],
    Answers = [receive {knocked, Host, Answer} -> {Host, Answer} end || _ <- lists:seq(1, Times * length(Hosts))],
    [io:format("~s ~b~n", [Host, Us]) || {Host, Us} <- Answers, is_integer(Us)],
    halt(0).

knock(Address, Port, Ms, Counts) ->
    Begun = erlang:monotonic_time(microsecond),
    Family = case tuple_size(Address) of 8 -> [inet6]; 4 -> [] end,
    try gen_tcp:connect(Address, Port, Family, Ms) of
        {error, econnrefused} ->
            erlang:monotonic_time(microsecond) - Begun;
        {ok, Socket} when Counts =:= "any" ->
            Us = erlang:monotonic_time(microsecond) - Begun,
            gen_tcp:close(Socket),
            Us;
        _ -> lost % a busy Erlang VM sometimes takes a refusal for a connection
    catch
        _:_ -> lost
    end.
