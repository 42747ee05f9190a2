%% Knocks at a port where nobody listens, many times at once, to tell how packets fare on the way.
%%
%% Arguments: a port, how many times, how long to wait (ms), and IPv4 addresses. Each answer ("refused", which the
%% kernel gives at once) is one line on standard output: the address, and the microseconds that it took. A knock that
%% was lost, or whose answer was, has none; the kernel repeats it only after a second (RFC 6298, 2.1), so wait less.
-module(resilience_probe).

-export([main/1]).

main([Port, Count, WaitMs | Hosts]) ->
    [To, Times, Ms] = [list_to_integer(Number) || Number <- [Port, Count, WaitMs]],
    Me = self(),
    Knock = fun(Host) ->
        {ok, Address} = inet:parse_address(Host),
        spawn(fun() -> Me ! {knocked, Host, knock(Address, To, Ms)} end)
    end,
    Knocks = [Knock(Host) || _ <- lists:seq(1, Times), Host <- Hosts],
    Answers = [receive {knocked, Host, Answer} -> {Host, Answer} end || _ <- Knocks],
    [io:format("~s ~b~n", [Host, Us]) || {Host, Us} <- Answers, is_integer(Us)],
    halt(0).

knock(Address, Port, Ms) ->
    Begun = erlang:monotonic_time(microsecond),
    case gen_tcp:connect(Address, Port, [], Ms) of
        {error, econnrefused} -> erlang:monotonic_time(microsecond) - Begun;
        {error, _} -> lost
    end.
