package machine

import (
	"testing"

	"github.com/conclave-go/conclave/internal/machine/reference"
	"github.com/conclave-go/conclave/internal/machine/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// The reference has written the limits down once more.
func TestLimit_ReferenceAgrees(t *testing.T) {
	limitsAgree(t, map[string][2]int64{
		"MaxName":            {MaxName, reference.MaxName},
		"MaxLabel":           {MaxLabel, reference.MaxLabel},
		"MaxTrace":           {MaxTrace, reference.MaxTrace},
		"MinTTL":             {MinTTL, reference.MinTTL},
		"MaxTTL":             {MaxTTL, reference.MaxTTL},
		"MaxLockDelay":       {MaxLockDelay, reference.MaxLockDelay},
		"MinMaxHold":         {MinMaxHold, reference.MinMaxHold},
		"MaxMaxHold":         {MaxMaxHold, reference.MaxMaxHold},
		"MinSilence":         {MinSilence, reference.MinSilence},
		"MaxGroups":          {MaxGroups, reference.MaxGroups},
		"MaxSessions":        {MaxSessions, reference.MaxSessions},
		"MaxAllSessions":     {MaxAllSessions, reference.MaxAllSessions},
		"MaxStandalone":      {MaxStandalone, reference.MaxStandalone},
		"MaxWaiters":         {MaxWaiters, reference.MaxWaiters},
		"MaxQueued":          {MaxQueued, reference.MaxQueued},
		"MaxSearched":        {MaxSearched, reference.MaxSearched},
		"MaxAllSearched":     {MaxAllSearched, reference.MaxAllSearched},
		"MaxOutcomeBytes":    {MaxOutcomeBytes, reference.MaxOutcomeBytes},
		"MaxAllOutcomeBytes": {MaxAllOutcomeBytes, reference.MaxAllOutcomeBytes},
		"MinOutcomeBytes":    {MinOutcomeBytes, reference.MinOutcomeBytes},
		"MaxInFlight":        {MaxInFlight, reference.MaxInFlight},
		"MaxMembers":         {MaxMembers, reference.MaxMembers},
		"MaxForgettable":     {MaxForgettable, reference.MaxForgettable},
		"firstBlock":         {firstBlock, reference.FirstBlock},
		"MaxBlock":           {MaxBlock, reference.MaxBlock},
		"MaxUnregistered":    {MaxUnregistered, reference.MaxUnregistered},
		"MaxIncarnations":    {MaxIncarnations, reference.MaxIncarnations},
		"MaxClients":         {MaxClients, reference.MaxClients},
		"MaxClientSessions":  {MaxClientSessions, reference.MaxClientSessions},
		"MaxRenewed":         {MaxRenewed, reference.MaxRenewed},
		"MaxClientTTL":       {MaxClientTTL, reference.MaxClientTTL},
		"MaxRegistering":     {MaxRegistering, reference.MaxRegistering},
		"MaxChecks":          {MaxChecks, reference.MaxChecks},
		"MaxSessionChecks":   {MaxSessionChecks, reference.MaxSessionChecks},
		"MaxCandidate":       {MaxCandidate, reference.MaxCandidate},
		"MaxPermits":         {MaxPermits, reference.MaxPermits},
		"MaxSet":             {MaxSet, reference.MaxSet},
		"MaxPassed":          {MaxPassed, reference.MaxPassed},
		"MaxSlots":           {MaxSlots, reference.MaxSlots},
		"MaxFormer":          {slots.MaxFormer, reference.MaxFormer},
		"MaxFormerBytes":     {slots.MaxFormerBytes, reference.MaxFormerBytes},
		"MaxValue":           {MaxValue, reference.MaxValue},
		"MaxOps":             {MaxOps, reference.MaxOps},
		"MaxPrefixKeys":      {MaxPrefixKeys, reference.MaxPrefixKeys},
		"MaxPrefixed":        {MaxPrefixed, reference.MaxPrefixed},
		"MaxKeys":            {MaxKeys, reference.MaxKeys},
		"MaxKeyBytes":        {MaxKeyBytes, reference.MaxKeyBytes},
	})
	jobLimitsAgree(t)
}

func jobLimitsAgree(t *testing.T) {
	t.Helper()
	limitsAgree(t, map[string][2]int64{
		"MinEvery":         {MinEvery, reference.MinEvery},
		"MaxEvery":         {MaxEvery, reference.MaxEvery},
		"MinKeep":          {MinKeep, reference.MinKeep},
		"MaxKeep":          {MaxKeep, reference.MaxKeep},
		"MaxRuns":          {MaxRuns, reference.MaxRuns},
		"MaxRunDetail":     {wire.MaxRunDetail, reference.MaxRunDetail},
		"MaxJobs":          {MaxJobs, reference.MaxJobs},
		"MaxJobBytes":      {MaxJobBytes, reference.MaxJobBytes},
		"ReservedJobs":     {ReservedJobs, reference.ReservedJobs},
		"ReservedJobBytes": {ReservedJobBytes, reference.ReservedJobBytes},
	})
	limitsAgree(t, map[string][2]int64{
		"MaxShards":       {MaxShards, reference.MaxShards},
		"MaxCapacity":     {MaxCapacity, reference.MaxCapacity},
		"MaxSettle":       {MaxSettle, reference.MaxSettle},
		"MaxShardSets":    {MaxShardSets, reference.MaxShardSets},
		"MaxAllShards":    {MaxAllShards, reference.MaxAllShards},
		"MaxShardWorkers": {MaxShardWorkers, reference.MaxShardWorkers},

		"MaxAllShardWorkers":   {MaxAllShardWorkers, reference.MaxAllShardWorkers},
		"ReservedShardWorkers": {ReservedShardWorkers, reference.ReservedShardWorkers},
		"MaxReleasedShards":    {MaxReleasedShards, reference.MaxReleasedShards},
		"MaxMoves":             {MaxMoves, reference.MaxMoves},
		"ReservedShardSets":    {ReservedShardSets, reference.ReservedShardSets},
		"ReservedShards":       {ReservedShards, reference.ReservedShards},
	})
}

func limitsAgree(t *testing.T, limits map[string][2]int64) {
	t.Helper()
	for name, limit := range limits {
		if limit[0] != limit[1] {
			t.Errorf("%s is %d in the machine and %d in the reference", name, limit[0], limit[1])
		}
	}
}
