%% Let the brokers of one cluster join one after the other, first come first served (a peer discovery backend).
%%
%% RabbitMQ's own classic_config guards joining with a global lock whose losers sleep for random times, up to eight
%% seconds each. All brokers of this cluster share a machine. So turns are folders in the folder that the environment
%% variable RESILIENCE_TURNS names: creating a folder is atomic. Turn 1 founds the cluster, and turn N joins after turn
%% N-1 has joined. Each folder has the node's name in the file "node", and a file "joined" once the node has joined. A
%% RAM node does not found a cluster: it takes no turn before another node has joined.
%%
%% The callbacks are those of rabbit_peer_discovery_backend, RabbitMQ 3.8 to 3.12.
-module(resilience_formation).

-export([init/0, list_nodes/0, supports_registration/0, register/0, unregister/0, post_registration/0]).
-export([lock/1, unlock/1]).

-define(TURN_TIMEOUT_MS, 120000).
-define(POLL_MS, 20).

init() -> ok.

%% Return all nodes that have joined. A node that comes back without its data finds the others by any of them.
list_nodes() ->
    {ok, {lists:usort([member(Turn) || Turn <- joined()]), rabbit_peer_discovery:node_type()}}.

joined() -> filelib:wildcard(turn("*", "joined")).

member(Joined) ->
    {ok, Node} = file:read_file(filename:join(filename:dirname(Joined), "node")),
    binary_to_atom(Node, utf8).

supports_registration() -> false.
register() -> ok.
unregister() -> ok.
post_registration() -> ok.

lock(Node) ->
    await_founder(rabbit_peer_discovery:node_type(), ?TURN_TIMEOUT_MS),
    await_turn(take_turn(Node, 1), ?TURN_TIMEOUT_MS).

await_founder(disc, _Left) -> ok;
await_founder(ram, Left) when Left =< 0 -> error;
await_founder(ram, Left) ->
    case joined() of
        [_ | _] -> ok;
        [] -> timer:sleep(?POLL_MS), await_founder(ram, Left - ?POLL_MS)
    end.

unlock(Turn) -> file:write_file(turn(Turn, "joined"), <<>>).

take_turn(Node, Turn) ->
    case file:make_dir(turn(Turn, "")) of
        ok ->
            ok = file:write_file(turn(Turn, "node"), atom_to_list(Node)),
            Turn;
        {error, eexist} ->
            case is_unfinished(Node, Turn) of
                true -> Turn;
                false -> take_turn(Node, Turn + 1)
            end
    end.

%% Return whether this node took the turn and did not end it, because it died while it joined.
is_unfinished(Node, Turn) ->
    file:read_file(turn(Turn, "node")) =:= {ok, atom_to_binary(Node, utf8)}
        andalso not filelib:is_file(turn(Turn, "joined")).

await_turn(1, _Left) -> {ok, 1};
await_turn(Turn, Left) when Left =< 0 -> {error, lists:concat(["turn ", Turn - 1, " has not joined"])};
await_turn(Turn, Left) ->
    case filelib:is_file(turn(Turn - 1, "joined")) of
        true -> {ok, Turn};
        false -> timer:sleep(?POLL_MS), await_turn(Turn, Left - ?POLL_MS)
    end.

turn(Turn, File) when is_integer(Turn) -> turn(integer_to_list(Turn), File);
turn(Turn, File) -> filename:join([os:getenv("RESILIENCE_TURNS"), Turn, File]).
