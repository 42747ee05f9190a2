%% Find the addresses of peers for the brokers of one cluster, in place of epmd.
%%
%% The file named by the environment variable RESILIENCE_PEERS has one term for each peer, {"a1", Host, Port}. Host and
%% port are the peer's own, or those of the proxy that carries the directed link to the peer. No name is ever
%% registered, so no daemon is needed and none is left behind.
%%
%% Only brokers have the flag -resilience_traffic File, not tools and other short-lived programs. A broker writes this
%% file five times a second, with one line for each connected peer. A line has the name of the connection, and three
%% numbers of bytes: sent by now, received by now, and sent 0.6 s before. Bytes that were sent 0.6 s ago and are not
%% received now have been held back.
%%
%% A broker also announces its name to clients, among the properties of Connection.Start (rabbit's server_properties),
%% because clients behind a load balancer cannot know the name otherwise.
%%
%% The broker itself asks epmd for its own port once, bypassing this module, when it lists its listeners. So the node
%% also answers that question, on the loopback port that ERL_EPMD_PORT names; protocol:
%% https://www.erlang.org/doc/apps/erts/erl_dist_protocol.html (EPMD protocol, PORT_PLEASE2).
%%
%% The callbacks are those of kernel's erl_epmd from OTP 21 to 29:
%% https://www.erlang.org/doc/apps/erts/alt_disco.html
-module(resilience_distribution).

-export([start_link/0, traffic_loop/2, answer_loop/1]).
-export([register_node/2, register_node/3, listen_port_please/2]).
-export([address_please/3, port_please/2, port_please/3, names/0, names/1, open/0, open/1, open/2, close/0]).

%% The version of the distribution protocol since OTP 23.
-define(PROTOCOL, 6).
-define(TRAFFIC_INTERVAL_MS, 200).
-define(LOOPBACK, {127, 0, 0, 1}).

start_link() ->
    {ok, spawn_link(fun() -> serve(init:get_argument(resilience_traffic)) end)}.

serve({ok, [[File]]}) ->
    announce(init:get_argument(sname)),
    spawn_link(?MODULE, answer_loop, [listen(list_to_integer(os:getenv("ERL_EPMD_PORT")))]),
    traffic_loop(File, [[], [], []]);
serve(error) ->
    receive after infinity -> ok end.

%% Set the property persistently, as rabbit is loaded later.
announce({ok, [[Node]]}) ->
    [Name | _] = string:split(Node, "@"),
    Properties = [{<<"node">>, longstr, list_to_binary(Name)}],
    application:set_env(rabbit, server_properties, Properties, [{persistent, true}]).

listen(Port) ->
    {ok, Listener} = gen_tcp:listen(Port, [binary, {ip, ?LOOPBACK}, {active, false}, {reuseaddr, true}, {packet, 2}]),
    Listener.

answer_loop(Listener) ->
    {ok, Socket} = gen_tcp:accept(Listener),
    try answer(Socket) catch _:_ -> ok end,
    gen_tcp:close(Socket),
    ?MODULE:answer_loop(Listener).

answer(Socket) ->
    {ok, <<$z, Name/binary>>} = gen_tcp:recv(Socket, 0, 1000),
    ok = inet:setopts(Socket, [{packet, raw}]),
    case place_of(binary_to_list(Name)) of
        {_, Port} ->
            gen_tcp:send(Socket, [<<$w, 0, Port:16, $M, 0, ?PROTOCOL:16, 5:16, (byte_size(Name)):16>>, Name, <<0:16>>]);
        false ->
            gen_tcp:send(Socket, <<$w, 1>>)
    end.

%% Earlier: the bytes sent by the end of each of the last intervals, newest first, as {Port, Octets}.
traffic_loop(File, Earlier) ->
    timer:sleep(?TRAFFIC_INTERVAL_MS),
    Links = [{Peer, Port, octets(Port, send_oct)} || {Peer, Port} <- erlang:system_info(dist_ctrl), is_port(Port)],
    try write_traffic(File, Links, lists:last(Earlier)) catch _:_ -> ok end,
    Now = [{Port, Sent} || {_, Port, Sent} <- Links],
    ?MODULE:traffic_loop(File, [Now | lists:droplast(Earlier)]).

write_traffic(File, Links, Before) ->
    Lines = [io_lib:format("~s ~w ~b ~b ~b~n", [Peer, Port, Sent, octets(Port, recv_oct), proplists:get_value(Port, Before, 0)])
             || {Peer, Port, Sent} <- Links],
    ok = file:write_file(File ++ ".new", Lines, [raw]),
    ok = file:rename(File ++ ".new", File).

%% Return the counter, or 0 for a connection that has just ended.
octets(Port, Counter) ->
    case inet:getstat(Port, [Counter]) of
        {ok, [{Counter, Octets}]} -> Octets;
        {error, _} -> 0
    end.

%% Return a new creation at every start; otherwise peers would take this node's old processes for living ones.
register_node(Name, Port) -> register_node(Name, Port, inet).
register_node(_Name, _Port, _Family) -> {ok, 4 + erlang:unique_integer([positive]) + erlang:system_time(second) rem 16#FFFFFFF}.

%% Return 0, so that the kernel's inet_dist_listen_min sets the port.
listen_port_please(_Name, _Host) -> {ok, 0}.

address_please(Name, _Host, _Family) ->
    case place_of(Name) of
        {Host, Port} -> address(inet:getaddr(Host, inet), Port);
        false -> {error, nxdomain}
    end.

address({ok, Address}, Port) -> {ok, Address, Port, ?PROTOCOL};
address({error, Reason}, _Port) -> {error, Reason}.

port_please(Name, Host) -> port_please(Name, Host, infinity).
port_please(Name, _Host, _Timeout) ->
    case place_of(Name) of
        {_, Port} -> {port, Port, ?PROTOCOL};
        false -> noport
    end.

names() -> names(localhost).
names(_Host) -> {ok, []}.

open() -> ok.
open(_Port) -> ok.
open(_Port, _Timeout) -> ok.
close() -> ok.

%% {Host, Port} or false.
place_of(Name) ->
    {ok, Peers} = file:consult(os:getenv("RESILIENCE_PEERS")),
    case lists:keyfind(text(Name), 1, Peers) of
        {_, Host, Port} -> {Host, Port};
        false -> false
    end.

text(Name) when is_atom(Name) -> atom_to_list(Name);
text(Name) -> Name.
