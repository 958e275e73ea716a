package machine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/conclave-go/conclave/internal/fact"
)

// Queries and answers as bytes, for a connection: JSON, which needs no second set of types and
// which people can read. A query that has a field which the other side does not know is
// refused, since its answer would be another one. A field of an answer that is not known is
// skipped.

const (
	// MaxQuery bounds an encoded query, in bytes: the longest has three names, of which JSON
	// may make six bytes from one.
	MaxQuery = 16 << 10
	// MaxAnswer bounds an answer that has no pages, in bytes before it is encoded.
	MaxAnswer = 64 << 20
)

var (
	// ErrQuery: the query cannot be sent: it is of no known kind, malformed, too long, or not
	// UTF-8.
	ErrQuery = errors.New("machine: invalid query")
	// ErrAnswer: the answer is not one to a query of that kind.
	ErrAnswer = errors.New("machine: invalid answer")
	// ErrAnswerTooLarge: the answer is larger than MaxAnswer.
	ErrAnswerTooLarge = errors.New("machine: the answer is too large: ask for less")
)

// codec encodes the queries of one type, and decodes them and their answers.
type codec struct {
	kind   string
	is     func(Query) bool
	query  func(body []byte) (Query, error)
	answer func(body []byte) (any, error)
}

// codecOf returns the codec of a query and its answer.
func codecOf[Q Query, A any](kind string) codec {
	return codec{
		kind:   kind,
		is:     func(q Query) bool { _, ok := q.(Q); return ok },
		query:  func(body []byte) (Query, error) { return decodeStrictly[Q](body) },
		answer: func(body []byte) (any, error) { var a A; err := json.Unmarshal(body, &a); return a, err },
	}
}

// codecs returns those of all queries.
func codecs() []codec {
	return []codec{
		codecOf[LockQuery, *LockView]("lock"),
		codecOf[LocksQuery, []LockView]("locks"),
		codecOf[LeaderQuery, *fact.Leader]("leader"),
		codecOf[LeadersQuery, []LeaderView]("leaders"),
		codecOf[SemaphoreQuery, *SemaphoreView]("semaphore"),
		codecOf[SemaphoresQuery, []SemaphoreView]("semaphores"),
		codecOf[JobQuery, *JobView]("job"),
		codecOf[JobsQuery, []JobView]("jobs"),
		codecOf[ShardsQuery, *ShardsView]("shards"),
		codecOf[ShardSetsQuery, []ShardsView]("shard-sets"),
		codecOf[HoldersQuery, HoldersView]("holders"),
		codecOf[SessionQuery, *SessionView]("session"),
		codecOf[SessionsQuery, []SessionView]("sessions"),
		codecOf[ChecksQuery, []CheckView]("checks"),
		codecOf[KeyQuery, *fact.Entry]("key"),
		codecOf[KeysQuery, []*fact.Entry]("keys"),
		codecOf[KeyNamesQuery, []string]("key-names"),
		codecOf[KeyPageQuery, []KeyView]("key-page"),
		codecOf[SequencerQuery, bool]("sequencer"),
		codecOf[IndexQuery, uint64]("index"),
		codecOf[GroupConfigQuery, fact.GroupConfig]("group-config"),
		codecOf[GroupsQuery, []GroupView]("groups"),
		codecOf[GroupQuery, *GroupView]("group"),
		codecOf[FollowingQuery, *fact.Following]("following"),
		codecOf[RemovedQuery, bool]("removed-member"),
		codecOf[WaitCyclesQuery, WaitCyclesView]("wait-cycles"),
		codecOf[ExplainQuery, *ExplainView]("explain"),
	}
}

func codecFor(fits func(codec) bool) (c codec, ok bool) {
	for _, c := range codecs() {
		if fits(c) {
			return c, true
		}
	}
	return codec{}, false
}

// EncodeQuery returns a query of this package as a kind and a body. The error is an ErrQuery.
func EncodeQuery(q Query) (kind string, body []byte, err error) {
	c, ok := codecFor(func(c codec) bool { return c.is(q) })
	if !ok {
		return "", nil, fmt.Errorf("%w: unknown type %T", ErrQuery, q)
	}
	if body, err = json.Marshal(q); err != nil {
		return "", nil, fmt.Errorf("%w: %w", ErrQuery, err)
	}
	same, err := DecodeQuery(c.kind, body)
	switch {
	case err != nil:
		return "", nil, err
	case same != q: // JSON has replaced what is not UTF-8
		return "", nil, fmt.Errorf("%w: a name or prefix is not valid UTF-8", ErrQuery)
	}
	return c.kind, body, nil
}

// DecodeQuery is the inverse of EncodeQuery, for any bytes. The error is an ErrQuery.
func DecodeQuery(kind string, body []byte) (Query, error) {
	c, ok := codecFor(func(c codec) bool { return c.kind == kind })
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: unknown kind of %d bytes", ErrQuery, len(kind))
	case len(body) > MaxQuery:
		return nil, fmt.Errorf("%w: limit exceeded: want at most %d bytes, got %d", ErrQuery, MaxQuery, len(body))
	}
	q, err := c.query(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrQuery, kind, err)
	}
	return q, nil
}

func decodeStrictly[Q any](body []byte) (q Q, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, err
	}
	if len(bytes.TrimSpace(body[d.InputOffset():])) > 0 {
		return q, errors.New("something follows the query")
	}
	return q, nil
}

// EncodeAnswer returns the answer to a query of this package as the parts of a body. It runs on
// any goroutine. What may be large is encoded part by part, so that no second copy of it waits
// for a slow reader. The error is an ErrAnswerTooLarge, or an ErrAnswer if no query has such an
// answer; it is the last part.
func EncodeAnswer(answer any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if n := AnswerSize(answer); n > MaxAnswer {
			yield(nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrAnswerTooLarge, n, MaxAnswer))
			return
		}
		switch a := answer.(type) {
		case []*fact.Entry:
			encodeEach(slices.Values(a), yield)
		case []string:
			encodeEach(slices.Values(a), yield)
		case *listing:
			encodeEach(a.each, yield)
		default:
			yield(encodePart(answer))
		}
	}
}

// answerPart is the size from which on a part of an answer is yielded.
const answerPart = 32 << 10

// encodeEach encodes a list as JSON.
func encodeEach[V any](values iter.Seq[V], yield func([]byte, error) bool) {
	var part []byte
	separator := byte('[')
	for v := range values {
		body, err := encodePart(v)
		if err != nil {
			yield(nil, err)
			return
		}
		part, separator = append(part, separator), ','
		if part = append(part, body...); len(part) >= answerPart {
			if !yield(part, nil) {
				return
			}
			part = nil
		}
	}
	if separator == '[' { // there are none
		yield(encodePart(nil))
		return
	}
	yield(append(part, ']'), nil)
}

func encodePart(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	return body, nil
}

// AnswerSize returns the approximate size of an answer that does not come in bounded pages, and
// 0 of the others.
func AnswerSize(answer any) (n int) {
	switch a := answer.(type) {
	case []*fact.Entry:
		for _, e := range a {
			n += itemSize(e)
		}
	case []string:
		for _, name := range a {
			n += itemSize(name)
		}
	case *listing:
		n = a.size
	}
	return n
}

// DecodeAnswer returns the answer to a query of a kind, with the type that the query states.
// The error is an ErrAnswer.
func DecodeAnswer(kind string, body []byte) (any, error) {
	c, ok := codecFor(func(c codec) bool { return c.kind == kind })
	if !ok {
		return nil, fmt.Errorf("%w: unknown kind of %d bytes", ErrAnswer, len(kind))
	}
	a, err := c.answer(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrAnswer, kind, err)
	}
	return a, nil
}
