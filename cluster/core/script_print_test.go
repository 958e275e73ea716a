package core

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
)

func link(from, to uint64) string { return fmt.Sprintf("%d->%d", from, to) }

func idList(ids []uint64) string {
	return strings.Trim(fmt.Sprint(slices.Sorted(slices.Values(ids))), "[]")
}

// memberNames returns a configuration as "voters | standbys", a joint one as "voters, before them voters | standbys".
func memberNames(conf *raftpb.ConfState) string {
	text := idList(conf.GetVoters())
	if len(conf.GetVotersOutgoing()) > 0 {
		text += " and " + idList(conf.GetVotersOutgoing())
	}
	if len(conf.GetLearners()) > 0 {
		text += " | " + idList(conf.GetLearners())
	}
	return text
}

// roleName describes who leads, as a member sees it.
func (p *player) roleName() string {
	switch {
	case p.role.RaftState == raft.StateLeader:
		return "leads"
	case p.role.Lead != raft.None:
		return fmt.Sprintf("follows %d", p.role.Lead)
	case p.role.RaftState == raft.StatePreCandidate:
		return "asks for pre-votes"
	case p.role.RaftState == raft.StateCandidate:
		return "asks for votes"
	}
	return "knows no leader"
}

func kindOf(m *raftpb.Message) string {
	return map[raftpb.MessageType]string{
		raftpb.MsgApp: "append", raftpb.MsgAppResp: "append-answer", raftpb.MsgHeartbeat: "heartbeat", raftpb.MsgHeartbeatResp: "heartbeat-answer",
		raftpb.MsgPreVote: "pre-vote", raftpb.MsgPreVoteResp: "pre-vote-answer", raftpb.MsgVote: "vote", raftpb.MsgVoteResp: "vote-answer",
		raftpb.MsgTimeoutNow: "timeout-now", raftpb.MsgReadIndex: "read", raftpb.MsgReadIndexResp: "read-answer",
	}[m.GetType()]
}

// describe describes a message by what its kind is about.
func describe(m *raftpb.Message) string {
	text := fmt.Sprintf("term %d", m.GetTerm())
	switch m.GetType() {
	case raftpb.MsgApp:
		text += fmt.Sprintf(", %s behind %d, commit %d", entriesText(m.GetEntries()), m.GetIndex(), m.GetCommit())
	case raftpb.MsgHeartbeat:
		text += fmt.Sprintf(", commit %d", m.GetCommit())
	case raftpb.MsgPreVote, raftpb.MsgVote:
		text += fmt.Sprintf(", log to %d of term %d", m.GetIndex(), m.GetLogTerm())
	case raftpb.MsgAppResp:
		text += fmt.Sprintf(", has %d", m.GetIndex())
	case raftpb.MsgReadIndexResp:
		text = fmt.Sprintf("at %d", m.GetIndex())
	case raftpb.MsgReadIndex:
		text = "request"
	}
	if m.GetReject() {
		text += ", rejected"
	}
	return text
}

// entriesText describes entries by what they bring.
func entriesText(entries []*raftpb.Entry) string {
	var texts []string
	for _, e := range entries {
		texts = append(texts, fmt.Sprintf("%d: %s", e.GetIndex(), entryText(e)))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func entryText(e *raftpb.Entry) string {
	if e.GetType() != raftpb.EntryNormal {
		change, err := confChange(e)
		if err != nil {
			return err.Error()
		}
		var parts []string
		for _, c := range change.AsV2().GetChanges() {
			name := map[raftpb.ConfChangeType]string{raftpb.ConfChangeAddNode: "voter", raftpb.ConfChangeAddLearnerNode: "standby", raftpb.ConfChangeRemoveNode: "remove"}
			parts = append(parts, fmt.Sprintf("%s %d", name[c.GetType()], c.GetNodeId()))
		}
		return cmp.Or(strings.Join(parts, " and "), "leave the joint configuration")
	}
	if len(e.GetData()) == 0 {
		return "first of term"
	}
	batch, err := parseEntry(e.GetData())
	if err != nil {
		return err.Error()
	}
	var texts []string
	for _, s := range decodeBatch(batch).GetSubmissions() {
		for _, c := range s.GetCalls() {
			texts = append(texts, commandText(c.GetCommand()))
		}
	}
	return cmp.Or(strings.Join(texts, "; "), "empty")
}

// commandText returns a command, a padded one as scripts have it.
func commandText(command []byte) string {
	if len(command) < 100 {
		return string(command)
	}
	return fmt.Sprintf("pad %s %d", command[:1], len(command)>>10)
}

// changedKeys lists what a checkpoint writes.
func changedKeys(op raftlog.Checkpoint) string {
	var keys []string
	for _, c := range op.Changes {
		switch key := string(c.Key); {
		case strings.Contains(key, "/"):
		case c.Value == nil:
			keys = append(keys, "no "+key)
		default:
			keys = append(keys, key+"="+string(c.Value))
		}
	}
	slices.Sort(keys)
	text := cmp.Or(strings.Join(keys, " "), "no key")
	if op.ConfState != nil {
		text += ", with members " + memberNames(op.ConfState)
	}
	return text
}

var (
	longID = regexp.MustCompile(`\b0{8,}([0-9a-f]+)\b`)
	digest = regexp.MustCompile(`\b[0-9a-f]{16}\b`)
)

// shorten writes member IDs as scripts have them, and no digests.
func shorten(line string) string {
	return digest.ReplaceAllString(longID.ReplaceAllString(line, "$1"), "...")
}

// status prints what a member knows of the group.
func (p *player) status() {
	s := p.Status()
	text := fmt.Sprintf("%d: %s, term %d, commit %d, applied %d, log to %d, members %s", p.id, p.roleName(), s.Term, s.Commit, s.Applied, p.last, memberNames(s.Membership))
	if s.Leads {
		text += map[bool]string{true: ", settled", false: ", not settled"}[s.Settled]
	}
	if p.arbitration.contested() {
		text += ", in dispute"
	}
	if p.Quiet() {
		text += ", quiet"
	}
	if s.Plan != "" {
		text += ", plan: " + shorten(s.Plan)
	}
	p.group.printf("%s", text)
}

// peerLines prints what a member knows of the others.
func (p *player) peerLines() {
	matches := p.Core.Peers()
	for _, o := range p.peers.all {
		text := fmt.Sprintf("%d of %d:", p.id, o.id)
		if o.heardAt == 0 {
			text += " nothing heard"
		} else {
			text += fmt.Sprintf(" heard %d ticks ago", p.ticks-o.heardAt)
		}
		if p.isLeader() {
			text += fmt.Sprintf(", has %d, %s", matches[o.id].Match, map[bool]string{true: "active", false: "inactive"}[p.reconciler.isActive(o.id)])
		}
		if o.catchUp != nil {
			text += fmt.Sprintf(", needs the log from %d", o.catchUp.from+1)
		}
		if o.claims != nil {
			text += ", digests"
		}
		if o.differs {
			text += ", differs"
		}
		p.group.printf("%s", text)
	}
}

// logLines prints the log that is durable.
func (p *player) logLines() {
	first, _ := p.log.FirstIndex()
	last, _ := p.log.LastIndex()
	entries, err := p.log.Entries(first, last+1, math.MaxUint64)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, e := range entries {
		p.group.printf("%d has %d of term %d: %s", p.id, e.GetIndex(), e.GetTerm(), entryText(e))
	}
	if len(entries) == 0 {
		p.group.printf("%d has no entry behind %d", p.id, last)
	}
}

// answers prints the results of transfers.
func (p *player) answers() {
	for _, what := range slices.Sorted(maps.Keys(p.waits)) {
		select {
		case err := <-p.waits[what]:
			delete(p.waits, what)
			p.group.printf("%d: %s: %s", p.id, what, cmp.Or(errorText(err), "done"))
		default:
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return shorten(err.Error())
}

// scriptCall is a call of a script.
type scriptCall struct {
	p    *player
	text string
}

func (c *scriptCall) Deliver(wire.Ticket, *wire.Reply, bool) {
	if c.text != "register" {
		c.p.group.printf("%d: outcome of %s", c.p.id, c.text)
	}
}

func (c *scriptCall) Fail(err error) {
	if c.text != "register" {
		c.p.group.printf("%d: %s fails: %s", c.p.id, c.text, errorText(err))
	}
}

func (c *scriptCall) Cancelled(bool)                                { c.p.group.printf("%d: %s is cancelled", c.p.id, c.text) }
func (*scriptCall) Recheck(wire.Rechecker, wire.Ticket) *wire.Reply { return nil }

// scriptRead prints the state that it reads.
type scriptRead struct{ p *player }

func (r scriptRead) Run(m Machine) { r.p.group.printf("%d: reads %v", r.p.id, m) }
func (scriptRead) Ended() bool     { return false }
