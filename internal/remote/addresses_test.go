package remote

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// What a member states replaces what was stated before, which is kept for a while: that member
// may know less than the one before.
func TestAddresses_Learn(t *testing.T) {
	var a addresses
	a.learn([]string{"a:1", "b:1", "b:1", "no port", strings.Repeat("x", 300) + ":1"})
	a.learn([]string{"a:1", "b:2"})
	a.learn(nil) // a member that does not know its group yet
	a.learn([]string{"a:1", "b:3"})
	if want := []string{"a:1", "b:3"}; !slices.Equal(a.members, want) {
		t.Errorf("members %v, want %v", a.members, want)
	}
	if want := []string{"b:2", "b:1"}; !slices.Equal(a.former, want) {
		t.Errorf("former %v, want %v", a.former, want)
	}
	a.learn([]string{"a:1", "b:1"})
	if want := []string{"b:3", "b:2"}; !slices.Equal(a.former, want) {
		t.Errorf("former %v, want %v", a.former, want)
	}
	for i := range 2000 {
		a.learn([]string{fmt.Sprint("c:", i)})
	}
	if len(a.former) != maxFormer {
		t.Errorf("%d former addresses", len(a.former))
	}
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprint("d:", i))
	}
	if a.learn(many); len(a.members) != maxStated {
		t.Errorf("%d addresses of members", len(a.members))
	}
}

// Neither the configured addresses nor those of the members come last: either may lead nowhere.
func TestAddresses_InOrder(t *testing.T) {
	a := addresses{members: []string{"m:1", "m:2", "m:3", "both:1"}, former: []string{"f:1", "f:2"}}
	configured := []string{"c:1", "both:1"}
	firsts := make(map[string]bool)
	for range 200 {
		got := a.inOrder(configured)
		if len(got) != 7 || !slices.Equal(got[5:], a.former) {
			t.Fatal(got)
		}
		if first := slices.IndexFunc(got, func(addr string) bool { return strings.HasPrefix(addr, "c") }); first > 3 {
			t.Fatal(got)
		}
		firsts[got[0]] = true
	}
	if len(firsts) != 4 {
		t.Errorf("200 times %v came first", firsts)
	}
	if got := new(addresses).inOrder(configured); len(got) != 2 {
		t.Error(got)
	}
}
