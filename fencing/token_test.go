package fencing_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/fencing"
)

func TestParse_AcceptsLists(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   []fencing.Token
	}{
		{nil, nil},
		{[]string{"invoices=7"}, []fencing.Token{{"invoices", 7}}},
		{[]string{" a=1 ,\tb/c:d=1:12"}, []fencing.Token{{"a", 1}, {"b/c:d", 1<<48 | 12}}},
		{[]string{"a=1", "b=2, c=3"}, []fencing.Token{{"a", 1}, {"b", 2}, {"c", 3}}},
		{[]string{"%61%2c%2C%3D%25%0a%C3%9F=1"}, []fencing.Token{{"a,,=%\nß", 1}}},
		{[]string{"it's(a)*!$&@~=1"}, []fencing.Token{{"it's(a)*!$&@~", 1}}},
		{[]string{"x=65535:281474976710655"}, []fencing.Token{{"x", 1<<64 - 1}}},
		{[]string{strings.Repeat("%F0%9F%98%80", 128) + "=1"}, []fencing.Token{{strings.Repeat("😀", 128), 1}}},
	} {
		if got, err := fencing.Parse(c.values); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%.80q: got %v, %v, want %v", c.values, got, err, c.want)
		}
	}
}

func TestParse_RefusesMalformedValues(t *testing.T) {
	for _, value := range []string{
		"", " ", ",", "a", "a=", "=1", "a=0", "a=-1", "a=+1", "a=01", "a = 1", "a=1,", ",a=1", "a=1,,b=2", "a=1;b=2", "a=1:",
		"a=0:1", "a=65536:1", "a=281474976710656", "a=18446744073709551616", "a=1e3", "a=１", "a=1=2", "a=1, a=1", "a=1, %61=2",
		"a+b=1", "a b=1", "ä=1", "\"a\"=1", "a\\=1", "a%=1", "a%4=1", "a%4g=1", "a%+4=1", "a%=41=1", "%00=1", "%ff=1", "%ED%A0%80=1", "%C0%AF=1",
		"a\n=1", "a\x00=1", strings.Repeat("a", 513) + "=1", strings.Repeat("a", 1<<20) + "=1", "a=" + strings.Repeat("1", 1<<20),
	} {
		tokens, err := fencing.Parse([]string{value})
		if !errors.Is(err, fencing.ErrMalformed) || !errors.Is(err, conclave.ErrInvalid) || tokens != nil {
			t.Errorf("%.80q: got %v, %v, want ErrMalformed", value, tokens, err)
		} else if len(err.Error()) > 500 {
			t.Errorf("%.80q: the error has %d bytes", value, len(err.Error()))
		}
	}
	if _, err := fencing.Parse([]string{"a=1", "a=2"}); !errors.Is(err, fencing.ErrMalformed) {
		t.Errorf("a lock in two lines: %v", err)
	}
	if _, err := fencing.Parse(many(17)); !errors.Is(err, fencing.ErrMalformed) {
		t.Errorf("17 tokens: %v", err)
	}
	if tokens, err := fencing.Parse(many(16)); err != nil || len(tokens) != 16 {
		t.Errorf("16 tokens: %v", err)
	}
}

func many(n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprintf("lock-%d=1", i))
	}
	return values
}

func TestFormat_RefusesWhatParseWould(t *testing.T) {
	seventeen := make([]fencing.Token, 17)
	for i := range seventeen {
		seventeen[i] = fencing.Token{Lock: fmt.Sprint(i), Fence: 1}
	}
	for name, c := range map[string]struct {
		tokens []fencing.Token
		want   error
	}{
		"no name":      {[]fencing.Token{{"", 1}}, conclave.ErrInvalid},
		"long name":    {[]fencing.Token{{strings.Repeat("x", 513), 1}}, conclave.ErrInvalid},
		"invalid name": {[]fencing.Token{{"\xff", 1}}, conclave.ErrInvalid},
		"NUL":          {[]fencing.Token{{"a\x00", 1}}, conclave.ErrInvalid},
		"no fence":     {[]fencing.Token{{"a", 0}}, fencing.ErrMissing},
		"twice":        {[]fencing.Token{{"a", 1}, {"a", 1}}, conclave.ErrInvalid},
		"seventeen":    {seventeen, conclave.ErrInvalid},
	} {
		if value, err := fencing.Format(c.tokens...); !errors.Is(err, c.want) || value != "" {
			t.Errorf("%s: got %q, %v, want %v", name, value, err, c.want)
		}
	}
	if value, err := fencing.Format(); value != "" || err != nil {
		t.Errorf("no tokens: %q, %v", value, err)
	}
}

// What Parse accepts is valid, and Format returns a value that means the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"invoices=7", "a=1, b=2:3", "%2C=1", "a=1,,", "%61=1,a=2", "ß=1", "%ED%A0%80=1", "a=0"} {
		f.Add(seed, "b=1")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		tokens, err := fencing.Parse([]string{first, second})
		if err != nil {
			if !errors.Is(err, fencing.ErrMalformed) || tokens != nil {
				t.Fatalf("got %v, %v", tokens, err)
			}
			return
		}
		for _, token := range tokens {
			if token.Fence == 0 || token.Lock == "" || len(token.Lock) > 512 || !utf8.ValidString(token.Lock) || strings.Contains(token.Lock, "\x00") {
				t.Fatalf("accepted %+v", token)
			}
		}
		value, err := fencing.Format(tokens...)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []byte(value) {
			if c < ' ' || c > '~' {
				t.Fatalf("byte %#x in %q", c, value)
			}
		}
		if again, err := fencing.Parse([]string{value}); err != nil || !slices.Equal(again, tokens) {
			t.Fatalf("%q: got %v, %v, want %v", value, again, err, tokens)
		}
	})
}

// Every name that a lock can have arrives as it was sent.
func FuzzFormat(f *testing.F) {
	for _, seed := range hostile {
		f.Add(seed, uint64(7))
	}
	f.Fuzz(func(t *testing.T, name string, fence uint64) {
		token := fencing.Token{Lock: name, Fence: conclave.Fence(fence)}
		value, err := fencing.Format(token)
		valid := name != "" && len(name) <= 512 && utf8.ValidString(name) && !strings.Contains(name, "\x00") && fence != 0
		if valid != (err == nil) {
			t.Fatalf("%q: %v", name, err)
		}
		if tokens, err := fencing.Parse([]string{value}); valid && (err != nil || !slices.Equal(tokens, []fencing.Token{token})) {
			t.Fatalf("%q: got %v, %v", value, tokens, err)
		}
	})
}

// hostile are valid names of locks that hurt what does not escape them.
var hostile = []string{
	"a", "a=1", "a, b", "a\r\nSet-Cookie: x", "\x01\x1b[31m\x7f", "%", "%41", "%2C", "+", " ", "\t", "\"", "\\", "<script>", "'", "😀", "a\u0301", "\u202e",
	"\ufeff", "\ufffd", strings.Repeat("\n", 512), strings.Repeat("😀", 128),
}
