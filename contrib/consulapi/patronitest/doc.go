// Package patronitest runs Patroni with PostgreSQL on Consul's HTTP API as conclave serves it: three agents, three nodes
// of a database cluster, and a writer on each node. No two nodes may accept writes at once, whatever fails, and some
// node accepts them again within a minute. It is a module of its own and runs programs only: patroni and PostgreSQL
// from the system, and conclave's command line, which it builds.
//
//	go -C contrib/consulapi/patronitest test -v .                  one failover and one restart of an agent
//	go -C contrib/consulapi/patronitest test -v . -rounds 20 -all  every scenario twenty times, for hours
package patronitest
