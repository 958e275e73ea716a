package machine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// What keeps one class of users from using up a limit for another one. The classes are members,
// which are programs with a part of the group, clients, which are other programs, and clients
// of a member's program, such as those of Consul's API.
const (
	byEach       = "each user has its own"                      // process, member, client or session
	byRequest    = "of one request"                             // nothing is shared
	countedApart = "classes are counted apart"                  // from level 6 on
	partReserved = "members have a part beyond that of clients" // from level 6 on; see Machine.limit
	ofOneClass   = "one class of users has it"
	ofTheName    = "who may use the name can hold it as well" // a share would protect nothing
	ofNone       = "no user's"
)

// Each limit says which classes of users share it, and why that is no harm: two classes never
// share one that one of them can use up for the other.
func TestLimit_ClassesOfUsers(t *testing.T) {
	stated := map[string]string{
		"MaxName": byRequest, "MaxLabel": byRequest, "MaxTrace": byRequest, "MaxTTL": byRequest, "MaxLockDelay": byRequest, "MaxHolds": byRequest,
		"MaxSessionChecks": byRequest, "MaxCandidate": byRequest, "MaxPermits": byRequest, "MaxSlots": byRequest, "MaxValue": byRequest, "MaxOps": byRequest,
		"MaxPrefixKeys": byRequest, "MaxRenewed": byRequest, "MaxClientTTL": byRequest, "MaxRegistering": byRequest, "MaxBlock": byRequest, "MaxMaxHold": byRequest, "MaxShards": byRequest, "MaxCapacity": byRequest, "MaxSettle": byRequest, "MaxReleasedShards": byRequest, "MaxEvery": byRequest, "MaxKeep": byRequest,
		"MaxReplaceAfter": byRequest, "MaxPage": byRequest, "MaxQuery": byRequest, "MaxAnswer": byRequest, "MaxHolders": byRequest, "MaxWith": byRequest, "MaxVisits": byRequest,
		"MaxPlaces": byEach, "MaxQueued": byEach, "MaxInFlight": byEach, "MaxOutcomeBytes": byEach, "MaxClientSessions": byEach,
		"MaxSet": byRequest, "MaxPassed": byRequest, "MaxSearched": byRequest, "MaxAllSearched": countedApart, "MaxTouched": countedApart, "MaxPrefixed": countedApart,
		"MaxSessions": countedApart, "MaxChecks": countedApart, "MaxAllOutcomeBytes": countedApart,
		"MaxAllSessions": partReserved, "MaxCandidates": partReserved, "MaxResized": partReserved, "MaxKeys": partReserved, "MaxKeyBytes": partReserved, "MaxJobs": partReserved, "MaxJobBytes": partReserved, "MaxShardSets": partReserved, "MaxAllShards": partReserved, "MaxAllShardWorkers": partReserved,
		"MaxIncarnations": ofOneClass, // members
		"MaxStandalone":   ofOneClass, // sessions that members create
		"MaxClients":      ofOneClass, // clients; hosts share it: cluster/client_registrations.go
		"MaxMembers":      ofOneClass,
		"MaxGroups":       ofOneClass, // what members create
		"MaxUnregistered": ofOneClass, // of processes that are no members yet
		"MaxForgettable":  ofNone,
		"MaxReleased":     ofNone,
		"MaxGrants":       ofNone,
		"MaxWaiters":      ofTheName,
		"MaxShares":       ofTheName,
		"MaxRuns":         ofTheName,
		"MaxShardWorkers": ofTheName,
		"MaxMoves":        ofTheName,
	}
	found := declaredLimits(t)
	for name := range found {
		if stated[name] == "" {
			t.Errorf("%s: state which classes of users share it, and what keeps one from using it up for another", name)
		}
	}
	for name := range stated {
		if !found[name] {
			t.Errorf("%s is no limit any more", name)
		}
	}
}

// declaredLimits finds the constants of the package whose names begin with Max.
func declaredLimits(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	for _, path := range must(filepath.Glob("*.go")) {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				return true
			}
			for _, s := range d.Specs {
				for _, name := range s.(*ast.ValueSpec).Names {
					if strings.HasPrefix(name.Name, "Max") {
						found[name.Name] = true
					}
				}
			}
			return true
		})
	}
	return found
}
