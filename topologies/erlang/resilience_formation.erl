%% Peer discovery that lets the brokers of one cluster join one after the other, in a stated order.
%%
%% RabbitMQ's own classic_config guards joining with a global lock whose losers sleep for random times,
%% up to eight seconds each. Here every node boots at once and waits for nothing but its turn. The
%% environment variable RESILIENCE_ORDER names all nodes, the first of which founds the cluster.
%%
%% Callbacks as in rabbit_peer_discovery_backend, RabbitMQ 3.8 to 3.12.
-module(resilience_formation).

-export([init/0, list_nodes/0, supports_registration/0, register/0, unregister/0, post_registration/0]).
-export([lock/1, unlock/1, joined/0]).

-define(TURN_TIMEOUT_MS, 120000).
-define(POLL_MS, 50).

init() -> ok.

list_nodes() -> {ok, {[hd(order())], disc}}.

supports_registration() -> false.
register() -> ok.
unregister() -> ok.
post_registration() -> ok.

lock(Node) ->
    case lists:takewhile(fun(Other) -> Other =/= Node end, order()) of
        [] -> {ok, Node};
        Before -> await_turn(Node, lists:last(Before), ?TURN_TIMEOUT_MS)
    end.

unlock(_Data) ->
    application:set_env(rabbit, ?MODULE, joined),
    ok.

joined() -> application:get_env(rabbit, ?MODULE) =:= {ok, joined}.

await_turn(_Node, Before, Left) when Left =< 0 -> {error, lists:concat([Before, " has not joined"])};
await_turn(Node, Before, Left) ->
    case rpc:call(Before, ?MODULE, joined, [], 5000) of
        true -> {ok, Node};
        _ -> timer:sleep(?POLL_MS), await_turn(Node, Before, Left - ?POLL_MS)
    end.

order() -> [list_to_atom(Name) || Name <- string:lexemes(os:getenv("RESILIENCE_ORDER"), " ")].
