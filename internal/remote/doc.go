// Package remote is the way of a process to the group that is no member: it implements the
// interface of package client over a connection to a member, and goes on with another member
// when that one fails.
//
// remote.go has the loop, which owns the calls and delivers outcomes; connecting.go finds a
// member and attaches to it; asking.go has queries, watches and what else a member is asked.
package remote
