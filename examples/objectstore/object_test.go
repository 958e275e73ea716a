//go:build unix

package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavetest"
	"github.com/conclave-go/conclave/fencing"
)

func object(client *s3.Client) Object {
	return Object{Client: client, Bucket: bucket, Key: "2026/11", Lock: "invoices"}
}

// content returns a function for Update that replaces any content.
func content(text string) func([]byte) ([]byte, error) {
	return func([]byte) ([]byte, error) { return []byte(text), nil }
}

// has fails the test unless the object has that content and fence.
func has(t *testing.T, o Object, want string, fence conclave.Fence) {
	t.Helper()
	got, f, err := o.Read(t.Context())
	if err != nil || string(got) != want || f != fence {
		t.Errorf("the object has %q with fence %v, %v, want %q with fence %v", got, f, err, want, fence)
	}
}

// stale fails the test unless the error is the refusal of the fence.
func stale(t *testing.T, err error, presented, largest conclave.Fence) {
	t.Helper()
	var refusal *conclave.StaleFenceError
	if !errors.Is(err, conclave.ErrStaleFence) || !errors.As(err, &refusal) || refusal.Presented != presented || refusal.Largest != largest {
		t.Errorf("got %v, want that %v came after %v", err, presented, largest)
	}
}

// A holder loses its session without noticing, as if paused: before its read, or between read and write. The next
// holder writes; the first one continues where it was.
func TestUpdate_HolderPaused(t *testing.T) {
	for _, paused := range []string{"before the read", "between read and write"} {
		t.Run(paused, func(t *testing.T) {
			o := object(store(t))
			group := conclavetest.Start(t, 3)
			old, err := group.Node(0).FencedLock(o.Lock).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			first := conclave.ContextWithFence(t.Context(), old) // no Do, which would cancel it
			if err := o.Update(first, content("first")); err != nil {
				t.Fatal(err)
			}
			var largest conclave.Fence
			next := func() {
				group.Partition([]int{0}) // its session expires in the group
				err := group.Node(1).FencedLock(o.Lock).Do(t.Context(), func(ctx context.Context, fence conclave.Fence) error {
					largest = fence
					return o.Update(ctx, content("second"))
				})
				if err != nil || largest <= old {
					t.Fatalf("the second holder's fence is %v, %v, after %v", largest, err, old)
				}
			}
			calls := 0
			if paused == "before the read" {
				next()
			}
			err = o.Update(first, func([]byte) ([]byte, error) {
				if calls++; largest == 0 {
					next()
				}
				return []byte("first, late"), nil
			})
			stale(t, err, old, largest)
			if want := map[bool]int{true: 1}[paused == "between read and write"]; calls != want {
				t.Errorf("%d calls, want %d", calls, want)
			}
			has(t, o, "second", largest)
		})
	}
}

// Each of concurrent writes takes effect once, also those that make the object: comparison and write are one step.
func TestUpdate_Concurrent(t *testing.T) {
	const writers, writes, fence = 8, 10, conclave.Fence(1<<48 | 7) // of a group that was restored
	o := object(store(t))
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range writes {
				err := o.Update(conclave.ContextWithFence(t.Context(), fence), func(content []byte) ([]byte, error) {
					n, err := strconv.Atoi(string(append([]byte("0"), content...)))
					return []byte(strconv.Itoa(n + 1)), err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	has(t, o, fmt.Sprint(writers*writes), fence)
}

// Holders with ascending fences write at any time. Whatever the order, no smaller fence follows a larger one.
func TestUpdate_LateHolders(t *testing.T) {
	const holders = 12
	o := object(store(t))
	var mu sync.Mutex
	var accepted []conclave.Fence
	var all sync.WaitGroup
	for f := conclave.Fence(1); f <= holders; f++ {
		all.Go(func() {
			err := o.Update(conclave.ContextWithFence(t.Context(), f), func(content []byte) ([]byte, error) {
				return fmt.Appendf(content, "%v ", f), nil
			})
			if err != nil && !errors.Is(err, conclave.ErrStaleFence) {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				accepted = append(accepted, f)
			}
		})
	}
	all.Wait()
	got, last, err := o.Read(t.Context())
	if err != nil || last != holders {
		t.Fatalf("the last fence is %v, %v, want %d", last, err, holders)
	}
	var before conclave.Fence
	written := bytes.Fields(got)
	for _, text := range written {
		f, err := conclave.ParseFence(string(text))
		if err != nil || f <= before {
			t.Fatalf("fence %v, %v, follows %v: %s", f, err, before, got)
		}
		before = f
	}
	if len(written) != len(accepted) {
		t.Errorf("the object has %d writes, %s, and %v were accepted", len(written), got, accepted)
	}
}

func TestUpdate_Errors(t *testing.T) {
	o := object(store(t))
	if err := o.Update(t.Context(), content("x")); !errors.Is(err, fencing.ErrMissing) {
		t.Errorf("a context without a fence: %v", err)
	}
	cause := errors.New("cause")
	ctx := conclave.ContextWithFence(t.Context(), 1)
	if err := o.Update(ctx, func([]byte) ([]byte, error) { return nil, cause }); err != cause {
		t.Errorf("got %v, want the function's error", err)
	}
	has(t, o, "", 0)
	if err := o.put(t.Context(), []byte("written by another program"), ""); err != nil {
		t.Fatal(err)
	}
	if err := o.Update(ctx, content("x")); err == nil || errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("an object without a fence: %v", err)
	}
}

// What the server does with each condition, without the recipe.
func TestServer_Conditions(t *testing.T) {
	o := object(store(t))
	status := func(err error) int {
		var answer *awshttp.ResponseError
		if errors.As(err, &answer) {
			return answer.HTTPStatusCode()
		}
		return map[bool]int{true: http.StatusOK}[err == nil]
	}
	put := func(etag string, want int) {
		t.Helper()
		if got := status(o.put(t.Context(), []byte("1\nbody "+etag), etag)); got != want {
			t.Errorf("condition %q: status %d, want %d", etag, got, want)
		}
	}
	etag := func() string {
		t.Helper()
		s, err := o.get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s.etag
	}
	const unknown = `"00000000000000000000000000000000"`
	put(unknown, http.StatusNotFound) // there is no object
	put("", http.StatusOK)
	first := etag()
	put("", http.StatusPreconditionFailed)
	put(unknown, http.StatusPreconditionFailed)
	put(first, http.StatusOK)
	put(first, http.StatusPreconditionFailed)
	put(etag(), http.StatusOK)
}

// Why the fence is in the body: one in the metadata changes, and the ETag does not. So the condition of a holder that
// has read before still holds, and its late write would be accepted.
func TestServer_ETagIgnoresMetadata(t *testing.T) {
	client := store(t)
	write := func(fence, ifMatch string) string {
		t.Helper()
		in := &s3.PutObjectInput{
			Bucket: aws.String(bucket), Key: aws.String("metadata"), Body: bytes.NewReader([]byte("equal")),
			Metadata: map[string]string{"fence": fence},
		}
		if ifMatch != "" {
			in.IfMatch = &ifMatch
		}
		out, err := client.PutObject(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return *out.ETag
	}
	before := write("1", "")
	if after := write("2", before); after != before {
		t.Errorf("the ETag of an equal body changed from %s to %s", before, after)
	}
	write("1", before) // the late write: accepted
}

// unconditional makes the client leave out conditions, as if the store ignored them.
func unconditional(change func(*s3.PutObjectInput)) func(*s3.Options) {
	return func(options *s3.Options) {
		options.APIOptions = append(options.APIOptions, func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("unconditional",
				func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
					if put, ok := in.Parameters.(*s3.PutObjectInput); ok {
						change(put)
					}
					return next.HandleInitialize(ctx, in)
				}), middleware.Before)
		})
	}
}

func TestCheckConditionalPut(t *testing.T) {
	for ignored, change := range map[string]func(*s3.PutObjectInput){
		"":              func(*s3.PutObjectInput) {},
		"If-Match":      func(in *s3.PutObjectInput) { in.IfMatch = nil },
		"If-None-Match": func(in *s3.PutObjectInput) { in.IfNoneMatch = nil },
	} {
		t.Run("ignored "+ignored, func(t *testing.T) {
			client := store(t, unconditional(change))
			for range 2 { // the probe exists at the second start of a program
				err := CheckConditionalPut(t.Context(), client, bucket, "probe")
				if errors.Is(err, ErrUnconditional) != (ignored != "") || ignored == "" && err != nil {
					t.Errorf("a store that ignores %q: %v", ignored, err)
				}
			}
		})
	}
}
