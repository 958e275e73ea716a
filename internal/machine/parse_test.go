package machine

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// arguments are the words of a line: some by place, some key=value, some flags.
type arguments struct {
	words []string
	err   error
}

func (a *arguments) at(i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	a.err = fmt.Errorf("word %d is missing", i)
	return ""
}

func (a *arguments) flag(name string) bool {
	for _, w := range a.words {
		if w == name {
			return true
		}
	}
	return false
}

func (a *arguments) value(key string) (string, bool) {
	for _, w := range a.words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v, true
		}
	}
	return "", false
}

func (a *arguments) number(key string) uint64 {
	v, ok := a.value(key)
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		a.err = err
	}
	return n
}

func (a *arguments) duration(key string, missing time.Duration) int64 {
	v, ok := a.value(key)
	if !ok {
		return int64(missing)
	}
	if v == "none" {
		return 0
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.err = err
	}
	return int64(d)
}

// owner reads session/handle, or session where there is no handle.
func (a *arguments) owner(i int) ([]byte, uint64) {
	name, handle, ok := strings.Cut(a.at(i), "/")
	if !ok {
		return a.id(name), 0
	}
	n, err := strconv.ParseUint(handle, 10, 64)
	if err != nil {
		a.err = err
	}
	return a.id(name), n
}

// id turns a word into an ID; "none" is no bytes at all.
func (a *arguments) id(word string) []byte {
	if word == "none" {
		return nil
	}
	id := makeID(word)
	return id[:]
}

// token reads key=ID; "token" if it is missing, so that every registration presents the
// token of the one before.
func (a *arguments) token(key string) []byte {
	v, ok := a.value(key)
	if !ok {
		v = "token"
	}
	return a.id(v)
}

// tokens reads tokens=ID,ID.
func (a *arguments) tokens() (tokens [][]byte) {
	v, _ := a.value("tokens")
	for _, word := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' }) {
		tokens = append(tokens, a.id(word))
	}
	return tokens
}

// text reads key=value, where the value may be written as a name may.
func (a *arguments) text(key string) []byte {
	v, ok := a.value(key)
	if !ok {
		return nil
	}
	return []byte((&arguments{words: []string{v}}).name(0))
}

// numbers reads name=1,2,3.
func (a *arguments) numbers(name string) (all []uint64) {
	list, _ := a.value(name)
	for _, n := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		all = append(all, (&arguments{words: []string{"id=" + n}}).number("id"))
	}
	return all
}

// label reads label=words, with _ for a space.
func (a *arguments) label() []byte {
	if _, ok := a.value("label"); !ok {
		return nil
	}
	return bytes.ReplaceAll(a.text("label"), []byte("_"), []byte(" "))
}

// one returns which of the flags is set, the first when none is.
func (a *arguments) one(names ...string) int32 {
	for i, name := range names {
		if a.flag(name) {
			return int32(i)
		}
	}
	return 0
}

func (a *arguments) name(i int) string {
	switch n := a.at(i); {
	case n == "''":
		return ""
	case n == "NUL":
		return "a\x00b"
	case strings.HasPrefix(n, "long:"):
		size, err := strconv.Atoi(n[len("long:"):])
		if err != nil {
			a.err = err
		}
		return strings.Repeat("n", size)
	default:
		return n
	}
}

// parseCommand reads a command of a script.
func parseCommand(words []string) ([]byte, error) {
	if words[0] == "bytes" {
		return hex.DecodeString(strings.Join(words[1:], ""))
	}
	a := &arguments{words: words}
	c := new(wire.Command)
	for _, parse := range []func(*arguments, *wire.Command){parseSession, parseMembership, parseClient, parseLock, parseSet, parseJob, parseShards, parseSemaphore, parseWrite} {
		if parse(a, c); c.Op != nil {
			return must(proto.Marshal(c)), a.err
		}
	}
	return nil, fmt.Errorf("no such command")
}

func parseSession(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "register":
		c.Op = &wire.Command_Register{Register: &wire.Register{
			Member: a.number("member"), Boot: a.number("boot"), Attempt: uint32(a.number("attempt")),
			Ttl: a.duration("ttl", 10*time.Second), Tokens: a.tokens(), NextToken: a.token("next"),
			Key: a.text("key"), FeatureLevel: uint32(a.number("level")), Voters: uint32(a.number("voters")),
			Name: string(a.text("name")), Advertise: string(a.text("at")), Ephemeral: a.flag("ephemeral"),
		}}
	case "renew":
		c.Op = &wire.Command_Renew{Renew: &wire.Renew{}}
	case "deregister":
		c.Op = &wire.Command_Deregister{Deregister: &wire.Deregister{}}
	case "raise":
		c.Op = &wire.Command_RaiseLevel{RaiseLevel: &wire.RaiseLevel{Level: uint32(a.number("level")), Force: a.flag("force"), Members: a.numbers("members")}}
	case "renew-session":
		c.Op = &wire.Command_RenewSession{RenewSession: &wire.RenewSession{Id: a.id(a.at(1))}}
	case "open", "create":
		op := &wire.OpenSession{
			Id: a.id(a.at(1)), Name: string(a.text("name")), Behavior: wire.Behavior(a.number("behavior")),
			Ttl: a.duration("ttl", 10*time.Second), LockDelay: a.duration("delay", 0),
		}
		if a.flag("delete") {
			op.Behavior = wire.Behavior_DELETE
		}
		if v, ok := a.value("checks"); ok {
			for i := range strings.Split(v, ",") {
				op.Checks = append(op.Checks, (&arguments{words: strings.Split(v, ",")}).name(i))
			}
		}
		if c.Op = (&wire.Command_OpenSession{OpenSession: op}); a.words[0] == "create" {
			c.Op = &wire.Command_CreateSession{CreateSession: &wire.CreateSession{Session: op}}
		}
	case "close":
		c.Op = &wire.Command_CloseSession{CloseSession: &wire.CloseSession{Id: a.id(a.at(1)), Graceful: a.flag("graceful")}}
	case "attach":
		c.Op = &wire.Command_AttachSession{AttachSession: &wire.AttachSession{Id: a.id(a.at(1))}}
	case "check":
		op := &wire.SetCheck{Name: a.name(1), Register: a.flag("register"), ForClient: a.flag("for-client"), Ttl: a.duration("ttl", 0)}
		op.State = wire.CheckState(a.one("passing", "warning", "critical", "unheard-of"))
		c.Op = &wire.Command_SetCheck{SetCheck: op}
	case "drop":
		c.Op = &wire.Command_DropCheck{DropCheck: &wire.DropCheck{Name: a.name(1)}}
	case "gossip":
		c.Op = &wire.Command_ReportGossip{ReportGossip: &wire.ReportGossip{
			Member: a.number("member"), Boot: a.number("boot"), Alive: a.flag("alive"), Term: term + a.number("later"),
		}}
	case "process":
		c.Op = &wire.Command_ReportProcess{ReportProcess: &wire.ReportProcess{
			Member: a.number("member"), Boot: a.number("boot"), Crashed: a.flag("crashed"), Term: term + a.number("later"),
		}}
	}
}

func parseMembership(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "remove-member":
		c.Op = &wire.Command_RemoveMember{RemoveMember: &wire.RemoveMember{Member: a.number("member"), Voters: a.numbers("voters")}}
	case "follow":
		op := &wire.FollowMembers{Index: a.number("index"), Level: uint32(a.number("level"))}
		for _, id := range a.numbers("members") {
			op.Members = append(op.Members, &wire.GroupMember{Member: id})
		}
		c.Op = &wire.Command_FollowMembers{FollowMembers: op}
	case "admit":
		c.Op = &wire.Command_AdmitMember{AdmitMember: &wire.AdmitMember{
			Member: a.number("member"), Key: a.text("key"), Name: string(a.text("name")), Advertise: string(a.text("at")),
			Ephemeral: a.flag("ephemeral"),
		}}
	case "configure":
		c.Op = &wire.Command_SetGroupConfig{SetGroupConfig: &wire.SetGroupConfig{
			Voters: uint32(a.number("voters")), ReplaceAfter: a.duration("replace", 0), RemoveAfter: a.duration("remove", 0),
		}}
	}
}

func parseLock(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "lock":
		op := &wire.Lock{
			Name: a.name(1), Reentrant: a.flag("reentrant"), Limit: uint32(a.number("limit")),
			Wait: a.flag("wait"), Fence: a.number("fence"), Election: a.flag("election"), Value: a.text("value"),
			Lingering: a.flag("lingering"), Label: a.label(),
			Shared: a.flag("shared"), Share: a.number("share"), RefuseDeadlock: a.flag("refuse-deadlock"), MaxHold: a.duration("max-hold", 0),
		}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Lock{Lock: op}
	case "refill":
		op := &wire.Refill{Name: a.name(1), Fence: a.number("fence"), Fences: uint32(a.number("fences"))}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Refill{Refill: op}
	case "unlock":
		op := &wire.Unlock{Name: a.name(1), Fence: a.number("fence"), Election: a.flag("election"), Trace: a.text("trace"), Share: a.number("share")}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Unlock{Unlock: op}
	case "downgrade":
		op := &wire.Downgrade{Name: a.name(1), Fence: a.number("fence"), Trace: a.text("trace")}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Downgrade{Downgrade: op}
	case "extend":
		op := &wire.Extend{Name: a.name(1), Fence: a.number("fence"), Share: a.number("share"), MaxHold: a.duration("max-hold", 0), Set: a.flag("set")}
		if a.flag("permits") {
			op.Space = wire.Space_SEMAPHORE
		} else if a.flag("election") {
			op.Space = wire.Space_ELECTION
		}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Extend{Extend: op}
	case "proclaim":
		op := &wire.Proclaim{Name: a.name(1), Fence: a.number("fence"), Value: a.text("value")}
		op.Session, op.Handle = a.owner(2)
		c.Op = &wire.Command_Proclaim{Proclaim: op}
	case "withdraw":
		t, err := ticketFrom(a.at(1))
		if err != nil {
			a.err = err
		}
		op := &wire.Withdraw{Incarnation: t.Incarnation[:], Seq: t.Seq}
		if t.Incarnation.IsZero() {
			op.Incarnation = nil
		}
		c.Op = &wire.Command_Withdraw{Withdraw: op}
	}
}

// ticketFrom reads incarnation.sequence number; "none" is no bytes at all.
func ticketFrom(word string) (wire.Ticket, error) {
	who, number, _ := strings.Cut(word, ".")
	seq, err := strconv.ParseUint(number, 10, 64)
	if who == "none" {
		who = ""
	}
	return wire.Ticket{Incarnation: makeID(who), Seq: seq}, err
}

func parseSemaphore(a *arguments, c *wire.Command) {
	switch a.words[0] {
	case "acquire":
		op := &wire.Acquire{Name: a.name(1), Limit: uint32(a.number("limit")), Permits: uint32(a.number("permits")), Wait: a.flag("wait"), MaxHold: a.duration("max-hold", 0)}
		op.Session, _ = a.owner(2)
		c.Op = &wire.Command_Acquire{Acquire: op}
	case "release":
		op := &wire.Release{Name: a.name(1), Fence: a.number("fence"), Trace: a.text("trace")}
		op.Session, _ = a.owner(2)
		c.Op = &wire.Command_Release{Release: op}
	case "resize":
		c.Op = &wire.Command_Resize{Resize: &wire.Resize{Name: a.name(1), Limit: uint32(a.number("limit"))}}
	}
}

// parseWrite reads operations with ; between them. Each is a kind, a key, and a
// value where the kind has one.
func parseWrite(a *arguments, c *wire.Command) {
	if a.words[0] != "write" {
		return
	}
	op := &wire.Write{}
	for _, text := range strings.Split(strings.Join(a.words[1:], " "), ";") {
		words := strings.Fields(text)
		if len(words) == 0 {
			continue // a Write of nothing
		}
		one := &arguments{words: words}
		for range max(1, one.number("times")) {
			op.Ops = append(op.Ops, one.keyOp())
		}
		if one.err != nil {
			a.err = one.err
		}
	}
	c.Op = &wire.Command_Write{Write: op}
}

func (a *arguments) keyOp() *wire.KeyOp {
	kind, ok := wire.KeyOp_Kind_value[strings.ToUpper(strings.ReplaceAll(a.words[0], "-", "_"))]
	if !ok {
		a.err = fmt.Errorf("%s is no operation on a key", a.words[0])
	}
	op := &wire.KeyOp{
		Kind: wire.KeyOp_Kind(kind), Key: a.name(1), Flags: a.number("flags"),
		Index: a.number("index"), Fence: a.number("fence"),
	}
	if len(a.words) > 2 && !strings.Contains(a.words[2], "=") {
		op.Value = []byte(a.name(2))
	}
	if s, ok := a.value("session"); ok {
		op.Session = a.id(s)
	}
	return op
}
