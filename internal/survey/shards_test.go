package survey

import (
	"testing"
	"time"

	"github.com/conclave-go/conclave/internal/machine"
)

// What is known is the sum of all sets, however many calls read them, and shards without an owner count from one sum to the next.
func TestShards_SumOfPages(t *testing.T) {
	set := func(name string, count uint32, owned int) machine.ShardsView {
		return machine.ShardsView{Name: name, Count: count, Owned: owned}
	}
	var s Shards
	start := time.Now()
	for _, step := range []struct {
		name  string
		at    time.Duration
		pages map[string][]machine.ShardsView
		want  ShardCounts
	}{
		{"no set", 0, nil, ShardCounts{}},
		{"one page", 1 * time.Second, map[string][]machine.ShardsView{"": {set("a", 8, 6), set("b", 4, 4)}}, ShardCounts{12, 2, 0}},
		{"a second later", 2 * time.Second, map[string][]machine.ShardsView{"": {set("a", 8, 5), set("b", 4, 4)}}, ShardCounts{12, 3, 2}},
		{"the first two pages of three", 3 * time.Second, map[string][]machine.ShardsView{"": {set("a", 8, 8)}, "a": {set("b", 8, 8)}, "b": {set("c", 8, 7)}}, ShardCounts{12, 3, 2}},
		{"the third one", 4 * time.Second, map[string][]machine.ShardsView{"b": {set("c", 8, 7)}}, ShardCounts{24, 1, 8}},
		{"none any more", 6 * time.Second, nil, ShardCounts{0, 0, 10}},
		{"nothing is added", 9 * time.Second, nil, ShardCounts{0, 0, 10}},
	} {
		s.look(start.Add(step.at), func(name string) []machine.ShardsView { return step.pages[name] })
		if got := s.Read(); got != step.want {
			t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
		}
	}
}

func TestShards_EmptyState(t *testing.T) {
	var s Shards
	s.Look(machine.New())
	if got := s.Read(); got != (ShardCounts{}) {
		t.Errorf("%+v", got)
	}
}
