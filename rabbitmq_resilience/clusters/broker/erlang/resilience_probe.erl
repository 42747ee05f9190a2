%% Knocks at a port, many times, to tell how packets fare on the way.
%%
%% Arguments: a port, how many times, how many at once for each address, how long to wait for each (ms), what counts as
%% an answer, and addresses. Answers are given by the kernel at once: "refused" where nobody listens, "any" where
%% somebody may. Each is one line on standard output: the address, and the microseconds that it took. A knock
%% that was lost, or whose answer was, has none; the kernel repeats it only after a second (RFC 6298, 2.1), so wait
%% less.
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
    case catch gen_tcp:connect(Address, Port, Family, Ms) of
        {error, econnrefused} ->
            erlang:monotonic_time(microsecond) - Begun;
        {ok, Socket} when Counts =:= "any" ->
            Us = erlang:monotonic_time(microsecond) - Begun,
            gen_tcp:close(Socket),
            Us;
        _ -> lost % now and then a busy Erlang machine takes a refusal for a connection
    end.
