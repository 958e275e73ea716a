package wire

import (
	"errors"
	"fmt"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// What a message from another process may contain. The limit of its frame bounds its bytes; but an
// element of a list takes a hundred bytes in memory and two on the wire, so what decodes a
// message asks Check first. Every field that can grow has a bound here, by its own name, which a test
// checks by reflection.

// Limits of frames, in bytes, by what they contain.
const (
	MaxHello       = 64 << 10       // Hello
	MaxProof       = 8 << 10        // Proof
	MaxForm        = 64 << 10       // FormRequest, FormReply
	MaxFrame       = 4 << 20        // Frame, MemberFrame
	MaxClientFrame = 1<<20 + 64<<10 // ClientFrame
	MaxChunk       = 1<<20 + 64<<10 // SnapshotHeader, SnapshotChunk
)

// Limits of fields.
const (
	// MaxRequestKind and MaxRequest bound the kind and the body of a Request that is answered,
	// in bytes. A longer body is refused in an Answer, so the bound of the field is that of the
	// frame.
	MaxRequestKind = 64
	MaxRequest     = 16 << 10
	// MaxLeaderPriority and its negative bound Hello.leader_priority.
	MaxLeaderPriority = 100
	// MaxAttached bounds what a client may ask about in all parts of an Attach, of each kind, as
	// the machine bounds its queue places and its sessions.
	MaxAttached = 16_384

	maxName     = 512    // bytes, of a lock, a semaphore or a session
	maxCalls    = 32_768 // of one submission: the sequence numbers above a floor
	maxNotices  = 65_536 // of one delivery
	maxMembers  = 4_096  // of a group, in its configuration
	maxVoters   = 64     // of a group; the machine accepts less
	maxFounders = 1_024  // that a process knows of
	maxChain    = 1_024  // endorsements
	maxPairs    = 65_536 // of one chunk of a snapshot
	maxOps      = 1_024  // of one Write; the machine accepts less
	maxChecks   = 1_024  // of one session; the machine accepts less
	maxIDs      = 4_096  // of one command
	maxNumbers  = 1_024  // of one grant; the machine grants less
	maxNames    = 1_024  // of one set, in each mode; the machine accepts less
	maxShards   = 4_096  // of one ReleaseShards; the machine accepts less
	maxGroups   = 2_048  // of a member, besides the default one; the machine accepts less
)

// Bound is the most that a field may have. Bytes is of each element.
type Bound struct{ Bytes, Count int }

// id is an ID, or none.
func id() Bound { return Bound{Bytes: len(ID{})} }

// text is a field of strings or bytes, and many a field of messages, that the frame bounds; or
// less.
func text(bytes int) Bound { return Bound{Bytes: bytes} }
func many(count int) Bound { return Bound{Count: count} }

// Bounds returns the bounds of all fields that can grow, by message and field.
func Bounds() map[string]Bound {
	return map[string]Bound{
		"Hello.group": text(MaxHello), "Hello.cluster": text(MaxHello), "Hello.incarnation": text(MaxHello), "Hello.advertise": text(MaxHello),
		"Hello.name": text(MaxHello), "Hello.refusal": text(MaxHello), "Hello.key": text(MaxHello), "Hello.nonce": text(MaxHello),
		"Hello.endorsements": many(maxChain), "Hello.groups": many(maxGroups), "Endorsement.key": text(MaxForm), "Endorsement.signature": text(MaxForm),
		"Proof.signature": text(MaxProof), "Proof.refusal": text(MaxProof),

		"GossipMeta.cluster": text(MaxForm), "GossipMeta.name": text(MaxForm), "GossipMeta.advertise": text(MaxForm), "GossipMeta.key": text(MaxForm),
		"GossipMeta.build": text(MaxForm),
		"Proposal.cluster": text(MaxForm), "Proposal.founders": many(maxFounders),
		"Founder.name": text(MaxForm), "Founder.advertise": text(MaxForm), "Founder.key": text(MaxForm),
		"FormReply.refusal": text(MaxForm), "FormReply.candidates": many(maxFounders),
		"Admission.cluster": text(MaxForm), "Admission.members": many(maxFounders), "Admission.endorsements": many(maxChain),

		"SnapshotHeader.raft": text(MaxChunk), "SnapshotChunk.pairs": many(maxPairs), "Pair.key": text(MaxChunk), "Pair.value": text(MaxChunk),

		"Frame.raft": text(MaxFrame), "Submission.incarnation": id(), "Submission.calls": many(maxCalls), "Call.command": text(MaxFrame),
		"Reach.voters": {8 * maxVoters, maxVoters}, "Membership.members": many(maxMembers), "VouchedMember.key": text(MaxFrame), "VouchedMember.name": text(MaxFrame),
		"VouchedMember.advertise": text(MaxFrame), "CrashEvidence.processes": many(maxMembers),

		"Attach.awaiting": many(MaxAttached), "Awaiting.session": id(), "Awaiting.semaphore": text(maxName), "Awaiting.job": text(2*maxName + 1),
		"Attach.sessions": {len(ID{}), MaxAttached},
		"Request.kind":    text(MaxRequestKind), "Request.body": text(MaxClientFrame),

		"Attached.outcomes": many(MaxAttached), "Attached.sessions": {len(ID{}), MaxAttached}, "Attached.elsewhere": {len(ID{}), MaxAttached},
		"Attached.members": {MaxFrame, maxMembers}, "GroupView.members": {MaxFrame, maxMembers}, "Delivery.notices": many(maxNotices), "EndedSession.session": id(),
		"DeliveredRecall.session": id(), "DeliveredRecall.lock": text(maxName), "Answer.part": text(MaxFrame), "Answer.error": text(MaxFrame),
		"Reply.detail": text(MaxFrame), "Reply.keys": many(maxOps), "Reply.checks": many(maxChecks), "Reply.trace": text(MaxFrame),
		"Reply.slots": {10 * maxNumbers, maxNumbers}, "Cycle.waits": many(MaxWaits), "Wait.name": text(maxName),
		"LockOwner.session": id(), "LockOwner.name": text(maxName), "LockOwner.label": text(maxName),
		"SetReply.fences": {10 * MaxSet, MaxSet}, "SetReply.taken": many(MaxSet),
		"Run.session": id(), "Run.detail": text(MaxRunDetail),
		"Holder.session": id(), "KeyMeta.session": id(), "CheckTerms.name": text(MaxFrame),
	}
}

// commandBounds returns those of commands. The machine refuses what is too long with a reason, so only
// lists have a bound of their own here.
func commandBounds() map[string]Bound {
	c := text(MaxClientFrame)
	return map[string]Bound{
		"Register.tokens": {MaxClientFrame, maxIDs}, "Register.next_token": c, "Register.key": c, "Register.name": c, "Register.advertise": c,
		"RegisterClient.key": c, "RenewClients.incarnations": {MaxClientFrame, maxIDs}, "RemoveMember.voters": {8 * maxIDs, maxIDs},
		"AdmitMember.key": c, "AdmitMember.name": c, "AdmitMember.advertise": c, "RaiseLevel.members": {8 * maxIDs, maxIDs},
		"OpenSession.id": c, "OpenSession.name": c, "OpenSession.checks": {MaxClientFrame, maxChecks}, "RenewSession.id": c, "AttachSession.id": c,
		"SetCheck.name": c, "DropCheck.name": c, "CloseSession.id": c, "Lock.name": c, "Lock.session": c, "Lock.value": c, "Lock.label": c,
		"Refill.name": c, "Refill.session": c, "Unlock.name": c, "Unlock.session": c, "Unlock.trace": c,
		"Downgrade.name": c, "Downgrade.session": c, "Downgrade.trace": c, "Extend.name": c, "Extend.session": c,
		"LockSet.session": c, "LockSet.names": {MaxClientFrame, maxNames}, "LockSet.shared": {MaxClientFrame, maxNames}, "LockSet.label": c,
		"UnlockSet.session": c, "UnlockSet.trace": c,
		"RunJob.job": c, "RunJob.key": c, "RunJob.session": c,
		"EndRun.job": c, "EndRun.key": c, "EndRun.session": c, "EndRun.detail": c, "EndRun.trace": c,
		"DeleteJob.job":    c,
		"CreateGroup.name": c, "CreateGroup.voters": {8 * maxIDs, maxIDs}, "CreateGroup.standbys": {8 * maxIDs, maxIDs},
		"FollowMembers.members": many(maxIDs), "FollowMembers.voters": {8 * maxIDs, maxIDs},
		"GroupMember.key": c, "GroupMember.name": c, "GroupMember.advertise": c,
		"JoinShards.set": c, "JoinShards.session": c, "LeaveShards.set": c, "LeaveShards.session": c, "ReleaseShards.set": c,
		"ReleaseShards.session": c, "ReleaseShards.shards": {10 * maxShards, maxShards}, "ReleaseShards.fences": {10 * maxShards, maxShards},
		"ResizeShards.set": c,
		"Proclaim.name":    c, "Proclaim.session": c, "Proclaim.value": c, "Acquire.name": c, "Acquire.session": c,
		"Release.name": c, "Release.session": c, "Release.trace": c, "Resize.name": c, "Write.ops": many(maxOps),
		"KeyOp.key": c, "KeyOp.value": c, "KeyOp.session": c, "Withdraw.incarnation": c,
	}
}

// Received returns a message of each type that comes from another process, and is decoded as a
// whole. The commands in a Submission are decoded by themselves.
func Received() []proto.Message {
	return []proto.Message{
		new(Hello), new(Proof), new(FormRequest), new(FormReply), new(SnapshotHeader), new(SnapshotChunk),
		new(GossipMeta), new(Frame), new(ClientFrame), new(MemberFrame), new(Command),
	}
}

// ErrBound: a message has more than a field may have.
var ErrBound = errors.New("wire: limit exceeded")

// shape is what Check knows of a message, by field number.
type shape struct {
	fields []shapeField
	// framed says that the limit of the largest frame is enough: there are no lists, no messages,
	// and no smaller bounds. Most of what members send to each other is of that kind.
	framed bool
}

type shapeField struct {
	name    string
	bound   Bound
	message *shape // nil: no message
	sized   bool   // has a length on the wire
	counted int    // from 1, among the lists and messages of its message; 0: neither
}

// shapes are computed once, from the descriptors of the messages and the bounds.
var shapes = sync.OnceValue(func() map[protoreflect.FullName]*shape {
	bounds, all := Bounds(), make(map[protoreflect.FullName]*shape)
	for name, b := range commandBounds() {
		bounds[name] = b
	}
	for _, m := range Received() {
		shapeOf(m.ProtoReflect().Descriptor(), bounds, all)
	}
	return all
})

func shapeOf(m protoreflect.MessageDescriptor, bounds map[string]Bound, all map[protoreflect.FullName]*shape) *shape {
	if s := all[m.FullName()]; s != nil {
		return s
	}
	s, counted := &shape{framed: true}, 0
	all[m.FullName()] = s
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if n := int(f.Number()); n >= len(s.fields) {
			s.fields = append(s.fields, make([]shapeField, n+1-len(s.fields))...)
		}
		to := &s.fields[f.Number()]
		to.name = fmt.Sprintf("%s.%s", m.Name(), f.Name())
		to.bound = bounds[to.name]
		if f.Message() != nil {
			to.message, to.bound.Count = shapeOf(f.Message(), bounds, all), max(1, to.bound.Count)
		}
		if f.IsList() || f.Message() != nil {
			counted++
			to.counted = counted
		}
		to.sized = f.IsList() || f.Message() != nil || f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind
		s.framed = s.framed && (!to.sized || to.counted == 0 && to.bound.Bytes >= MaxFrame)
	}
	return s
}

// Check checks the encoding of a message against the bounds before it is decoded: nothing is
// allocated. The message is one of Received; what it contains does not matter. A message that
// occurs twice, and is no list, is refused: a decoder makes one of both, with the elements of
// both. What is malformed passes: the decoder refuses it. The error is an ErrBound.
func Check(m proto.Message, body []byte) error {
	s := shapes()[m.ProtoReflect().Descriptor().FullName()]
	if s == nil {
		return fmt.Errorf("%w: %T has no bounds", ErrBound, m)
	}
	return s.check(body)
}

// maxCounted bounds the lists and messages of one message.
const maxCounted = 48

func (s *shape) check(body []byte) error {
	var counts [maxCounted + 1]int32
	for len(body) > 0 {
		number, kind, n := protowire.ConsumeTag(body)
		if n < 0 {
			return nil
		}
		body = body[n:]
		value := body
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(body)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, body)
		}
		if n < 0 {
			return nil
		}
		body = body[n:]
		if int(number) >= len(s.fields) || !s.fields[number].sized {
			continue // a number; or of a later version, which is kept as bytes
		}
		f := &s.fields[number]
		if counts[f.counted]++; f.counted > 0 && int(counts[f.counted]) > f.bound.Count {
			return fmt.Errorf("%w: %s: want at most %d", ErrBound, f.name, f.bound.Count)
		}
		if kind != protowire.BytesType {
			continue
		}
		if err := f.check(value); err != nil {
			return err
		}
	}
	return nil
}

func (f *shapeField) check(value []byte) error {
	switch {
	case f.message != nil && f.message.framed:
		return nil
	case f.message != nil:
		return f.message.check(value)
	case len(value) > f.bound.Bytes:
		return fmt.Errorf("%w: %s: got %d bytes, want at most %d", ErrBound, f.name, len(value), f.bound.Bytes)
	}
	return nil
}

// Decode decodes a message that another process has sent, if it is within its bounds. The message is
// one of Received. The error is an ErrBound, or that of package proto.
func Decode(body []byte, m proto.Message) error {
	if err := Check(m, body); err != nil {
		return err
	}
	return proto.Unmarshal(body, m)
}
