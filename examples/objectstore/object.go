package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

// ErrUnconditional: the store ignores conditions of a PUT, and cannot refuse a late write.
var ErrUnconditional = errors.New("the store ignores If-Match or If-None-Match of a PUT")

// Object is an object that a lock protects. All holders must write it with Update, and none may delete it: the
// object has the largest fence, which refuses the lock's earlier holders. To clear it, write empty content.
type Object struct {
	Client *s3.Client
	Bucket string
	Key    string
	Lock   string // the lock's name
}

// Update replaces the content by what f returns for the present one, nil at first. The fence is that of
// fencing.FenceFromContext. It returns an error that wraps a *conclave.StaleFenceError if a later holder has
// written, and writes nothing then, and an error of f as it is. f is called again if another write came between.
//
// After any other error of the write itself, such as a lost answer, the outcome is unknown.
func (o Object) Update(ctx context.Context, f func(content []byte) ([]byte, error)) error {
	fence, err := fencing.FenceFromContext(ctx, o.Lock)
	if err != nil {
		return o.fault("update", err)
	}
	for {
		present, err := o.get(ctx)
		if err != nil {
			return o.fault("update", err)
		}
		if fence < present.fence {
			return o.fault("update", &conclave.StaleFenceError{Presented: fence, Largest: present.fence})
		}
		content, err := f(present.content)
		if err != nil {
			return err
		}
		// The condition joins this write to the comparison above: the store accepts it only if the object is still
		// the one whose fence was compared.
		err = o.put(ctx, encode(fence, content), present.etag)
		if !refused(err) {
			return o.fault("update", err)
		}
	}
}

// Read returns the content and the fence under which it was written, 0 for an object that does not exist.
func (o Object) Read(ctx context.Context) (content []byte, fence conclave.Fence, err error) {
	s, err := o.get(ctx)
	return s.content, s.fence, o.fault("read", err)
}

func (o Object) fault(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("objectstore: %s %s/%s: %w", op, o.Bucket, o.Key, err)
}

// state is what one GET has returned, so its parts belong together.
type state struct {
	content []byte
	fence   conclave.Fence
	etag    string // "" for an object that does not exist
}

func (o Object) get(ctx context.Context) (state, error) {
	answer, err := o.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &o.Bucket, Key: &o.Key})
	var none *types.NoSuchKey
	if errors.As(err, &none) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	defer func() { _ = answer.Body.Close() }() // all of it is read, or the error is returned
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return state{}, err
	}
	if aws.ToString(answer.ETag) == "" {
		return state{}, errors.New("the store returned no ETag")
	}
	fence, content, err := decode(body)
	return state{content, fence, *answer.ETag}, err
}

// put writes the object if its ETag is still that one, or, for "", if it does not exist. The client must not retry: the
// first attempt may have taken effect without an answer, and the second would then be refused, as if none had.
func (o Object) put(ctx context.Context, body []byte, etag string) error {
	in := &s3.PutObjectInput{Bucket: &o.Bucket, Key: &o.Key, Body: bytes.NewReader(body)}
	if etag == "" {
		in.IfNoneMatch = aws.String("*")
	} else {
		in.IfMatch = &etag
	}
	_, err := o.Client.PutObject(ctx, in, func(options *s3.Options) { options.Retryer = aws.NopRetryer{} })
	return err
}

// refused reports whether the store has refused a conditional write, without effect: the first if the condition did
// not hold, the second (from Amazon S3) if another conditional write was under way.
func refused(err error) bool {
	var answer smithy.APIError
	return errors.As(err, &answer) &&
		(answer.ErrorCode() == "PreconditionFailed" || answer.ErrorCode() == "ConditionalRequestConflict")
}

// encode puts the fence in front of the content, in a line of its own. It must be in the body: an ETag depends on the
// body only, so a fence in the metadata could change without it.
func encode(fence conclave.Fence, content []byte) []byte {
	return append([]byte(fence.String()+"\n"), content...)
}

func decode(body []byte) (conclave.Fence, []byte, error) {
	line, content, found := bytes.Cut(body, []byte("\n"))
	if !found {
		return 0, nil, errors.New("the object does not begin with a line with a fence")
	}
	fence, err := conclave.ParseFence(string(line))
	return fence, content, err
}

// CheckConditionalPut returns an error that wraps ErrUnconditional if the bucket's store ignores the conditions that
// Update depends on: such a store answers as if each held. A program calls it at its start. It
// writes an object with that key, which the program must not use otherwise.
func CheckConditionalPut(ctx context.Context, client *s3.Client, bucket, key string) error {
	probe := Object{Client: client, Bucket: bucket, Key: key}
	if err := probe.put(ctx, nil, ""); err != nil && !refused(err) {
		return probe.fault("check", err)
	}
	// It exists now, and is empty. No store has these ETags for it.
	for _, etag := range []string{"", `"00000000000000000000000000000000"`} {
		if err := probe.put(ctx, nil, etag); err == nil {
			return probe.fault("check", ErrUnconditional)
		} else if !refused(err) {
			return probe.fault("check", err)
		}
	}
	return nil
}
