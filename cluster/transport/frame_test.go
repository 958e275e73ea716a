package transport

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"google.golang.org/protobuf/proto"
)

func TestReadFrame_Malformed(t *testing.T) {
	good := appendFrame(nil, []byte("body"))
	damaged := bytes.Clone(good)
	damaged[len(damaged)-1] ^= 1
	for _, c := range []struct {
		name string
		in   []byte
		want error
	}{
		{"empty", nil, io.EOF},
		{"half of a header", good[:5], io.ErrUnexpectedEOF},
		{"header only", good[:8], io.ErrUnexpectedEOF},
		{"half of a body", good[:10], io.ErrUnexpectedEOF},
		{"flipped bit", damaged, ErrBadFrame},
		{"keep-alive with a checksum", []byte{0, 0, 0, 0, 0, 0, 0, 1}, ErrBadFrame},
		{"length of 4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, ErrTooLarge},
		{"one byte over the limit", appendFrame(nil, make([]byte, 17)), ErrTooLarge},
		{"at the limit", appendFrame(nil, make([]byte, 16)), nil},
		{"complete", good, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := readFrame(bytes.NewReader(c.in), 16, nil); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// The length in a header is checked before memory is allocated for it.
func TestReadFrame_OversizedNotAllocated(t *testing.T) {
	header := []byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}
	r := bytes.NewReader(header)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := readFrame(r, 4<<20, nil); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes were allocated", n)
	}
}

func TestAppendMessage_RoundTrip(t *testing.T) {
	var buf []byte
	var err error
	for _, s := range []string{"one", "two", "three"} {
		if buf, err = appendMessage(buf, raftFrame(s)); err != nil {
			t.Fatal(err)
		}
	}
	r := bytes.NewReader(buf)
	for _, s := range []string{"one", "two", "three"} {
		body, err := readFrame(r, 1024, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := raftFrame("")
		if err := proto.Unmarshal(body, got); err != nil || !proto.Equal(got, raftFrame(s)) {
			t.Errorf("got %v, %v, want %q", got, err, s)
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(appendFrame(nil, []byte("body")))
	f.Add(appendFrame(nil, nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		for {
			body, err := readFrame(r, 256, nil)
			if err != nil {
				return
			}
			if len(body) > 256 {
				t.Fatalf("got %d bytes", len(body))
			}
			again := appendFrame(nil, body)
			if back, err := readFrame(bytes.NewReader(again), 256, nil); err != nil || !bytes.Equal(back, body) {
				t.Fatalf("%q came back as %q, %v", body, back, err)
			}
		}
	})
}
