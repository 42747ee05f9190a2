%% Knocks at a port where nobody listens, many times, to tell how packets fare on the way.
%%
%% Arguments: a port, how many times, how many at once for each address, how long to wait for each (ms), and IPv4
%% addresses. Each answer ("refused", which the kernel gives at once) is one line on standard output: the address, and
%% the microseconds that it took. A knock that was lost, or whose answer was, has none; the kernel repeats it only
%% after a second (RFC 6298, 2.1), so wait less.
-module(resilience_probe).

-export([main/1]).

main([Port, Count, AtOnce, WaitMs | Hosts]) ->
    [To, Times, Knockers, Ms] = [list_to_integer(Number) || Number <- [Port, Count, AtOnce, WaitMs]],
    Me = self(),
    Knock = fun(Host, Shares) ->
        {ok, Address} = inet:parse_address(Host),
        [Me ! {knocked, Host, knock(Address, To, Ms)} || _ <- Shares]
    end,
    [spawn_link(fun() -> Knock(Host, lists:seq(First, Times, Knockers)) end)
     || Host <- Hosts, First <- lists:seq(1, min(Knockers, Times))],
    Answers = [receive {knocked, Host, Answer} -> {Host, Answer} end || _ <- lists:seq(1, Times * length(Hosts))],
    [io:format("~s ~b~n", [Host, Us]) || {Host, Us} <- Answers, is_integer(Us)],
    halt(0).

knock(Address, Port, Ms) ->
    Begun = erlang:monotonic_time(microsecond),
    case catch gen_tcp:connect(Address, Port, [], Ms) of
        {error, econnrefused} -> erlang:monotonic_time(microsecond) - Begun;
        _ -> lost % now and then a busy Erlang machine takes a refusal for a connection
    end.
