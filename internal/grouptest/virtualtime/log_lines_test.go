package virtualtime

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// journals returns an option that collects what each member logs, and the journals.
func journals(n int) (grouptest.Option, []*grouptest.Journal) {
	all := make([]*grouptest.Journal, n)
	for i := range all {
		all[i] = grouptest.NewJournal()
	}
	return grouptest.Edit(func(i int, c *conclave.Config, _ *cluster.Seams) { c.Logger = all[i].Logger() }), all
}

// lines returns the lines above Debug with a text, after the first so many bytes.
func lines(t testing.TB, j *grouptest.Journal, behind int, text string) (found []string) {
	t.Helper()
	for line := range strings.Lines(j.Text()[behind:]) {
		if !strings.Contains(line, "level=DEBUG") && strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// memberAttr matches an attribute with a member's ID, and what follows.
var memberAttr = regexp.MustCompile(` (member|leader|by|from|to)=[0-9a-f]{16}(.*)`)

// Each line that has a member's ID has its name, also of a member that is new, has crashed or is removed.
func TestLog_NamesMembers(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	option, all := journals(4)
	grouptest.InBubble(t, 4, func(g *grouptest.Group) {
		g.Start(3)
		g.AwaitMembers(4)
		leader := g.Leader()
		g.Kill(leader)
		next := g.LeaderWithout(leader)
		pass(time.Minute)
		g.Start(leader)
		g.Leader()
		removed := g.ID(3)
		g.Kill(3)
		pass(30 * time.Second)
		grouptest.Must(g.T, g.Nodes[next].RemoveMember(grouptest.Within(g.T, time.Minute), removed))
		g.AwaitMembers(3)
		pass(10 * time.Second)
		g.KillAll()

		seen := make(map[string]bool)
		for _, j := range all {
			for _, line := range lines(g.T, j, 0, "") {
				for rest := line; ; {
					m := memberAttr.FindStringSubmatch(rest)
					if m == nil {
						break
					}
					key := m[1] + "Name"
					if m[1] == "member" {
						key = "name"
					}
					if rest = m[2]; !strings.Contains(rest, " "+key+"=member-") {
						g.T.Errorf("%s is without its name in %s", m[1], line)
					}
				}
				if strings.Contains(line, "changing the membership") && !strings.Contains(line, "member-") {
					g.T.Errorf("no name in %s", line)
				}
				_, after, _ := strings.Cut(line, `msg="`)
				message, _, _ := strings.Cut(after, `"`)
				seen[message] = true
			}
		}
		for _, message := range []string{"leader changed", "peer connected", "liveness changed", "changing the membership", "member joined", "member removed", "inbound connection lost"} {
			if !seen[message] {
				g.T.Errorf("%q is not logged", message)
			}
		}
	}, option, grouptest.Newcomers(1))
}

// What an operator has to act on is a warning with the remedy; an election, and the end of an outage, are none.
func TestLog_WarnsByConsequence(t *testing.T) {
	skipIfShort(t)
	t.Parallel()
	option, all := journals(3)
	grouptest.InBubble(t, 3, func(g *grouptest.Group) {
		want := func(when string, i, behind int, texts ...string) {
			g.T.Helper()
			for _, text := range texts {
				if len(lines(g.T, all[i], behind, text)) == 0 {
					g.T.Errorf("%s: member %d has not logged %s:\n%s", when, i, text, strings.Join(lines(g.T, all[i], behind, ""), "\n"))
				}
			}
		}
		g.Leader()
		pass(time.Minute)
		for i := range all {
			if warned := lines(g.T, all[i], 0, "level=WARN"); len(warned) > 0 {
				g.T.Errorf("a start is no outage: %s", strings.Join(warned, "\n"))
			}
		}
		leader := g.Leader()
		x, y := (leader+1)%3, (leader+2)%3

		behind := all[y].Length()
		g.Disconnect(x)
		pass(time.Minute)
		want("one dead", leader, 0, `level=WARN msg="liveness changed" member=`)
		want("one dead", y, behind, `level=WARN msg="redundancy changed" redundancy=0 down=`, "downNames=member-")
		if doing := g.Nodes[leader].Status().Reconciling; !strings.HasPrefix(doing, g.Configs[x].Name+" ("+g.ID(x).String()+") is silent") {
			g.T.Errorf("the leader waits for %s", doing)
		}
		if missed := lines(g.T, all[y], behind, `msg="no leader"`); len(missed) > 0 {
			g.T.Error(missed)
		}
		g.Net.Rejoin(x)
		pass(time.Minute)
		want("healed", leader, 0, `level=INFO msg="liveness changed" member=`)

		g.Kill(x, leader)
		pass(time.Minute)
		want("two dead", y, behind, `level=WARN msg="redundancy changed" redundancy=-1`, `level=WARN msg="quorum lost" remedy=`, `level=WARN msg="no leader" last=`)

		behind = all[y].Length()
		g.Start(x, leader)
		g.Leader()
		pass(time.Minute)
		want("all back", y, behind, `level=INFO msg="leader found" leader=`, `level=INFO msg="quorum regained"`, `level=INFO msg="redundancy changed" redundancy=1`)
	}, option)
}

// A member that others are to admit states itself: that is no line about another member.
func TestLog_NoMemberVouchesForItself(t *testing.T) {
	t.Parallel()
	option, all := journals(5)
	grouptest.InBubble(t, 5, func(g *grouptest.Group) {
		g.Kill(0)
		g.Start(3)
		g.Start(4)
		g.AwaitMembers(5)
		g.Start(0)
		g.AwaitMembers(5)
		pass(10 * time.Second)
		g.KillAll()
		seen := 0
		for _, j := range all {
			for _, line := range lines(g.T, j, 0, "another member vouches") {
				var ids []string
				for _, key := range []string{" member=", " by="} {
					_, after, _ := strings.Cut(line, key)
					id, _, _ := strings.Cut(after, " ")
					ids = append(ids, id)
				}
				if seen++; ids[0] == ids[1] {
					g.T.Error(line)
				}
			}
		}
		if seen == 0 {
			g.T.Error("no member has vouched for another one")
		}
	}, option, grouptest.Newcomers(2))
}
