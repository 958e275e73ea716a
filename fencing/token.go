package fencing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/conclave-go/conclave"
)

// Header is the name of the HTTP header that carries fences. In gRPC the metadata key is the
// same in lower case.
const Header = "Fencing-Token"

const (
	maxName   = 512 // bytes, of a lock's name
	maxTokens = 16  // of a request
)

// Errors of requests. Both are refusals for which a retry of the same request is useless.
var (
	// ErrMalformed: the header, or the metadata, is not a list of tokens. It wraps
	// conclave.ErrInvalid.
	ErrMalformed = fmt.Errorf("%w fencing token", conclave.ErrInvalid)
	// ErrMissing: the request, or the context, has no fence for the lock.
	ErrMissing = errors.New("missing fencing token")
)

// Token is the fence of a lock.
type Token struct {
	Lock  string
	Fence conclave.Fence
}

// String returns name=fence, as the header has it.
func (t Token) String() string { return escape(t.Lock) + "=" + t.Fence.String() }

func (t Token) validate() error {
	if err := validateName(t.Lock); err != nil {
		return err
	}
	if t.Fence == 0 {
		return fmt.Errorf("%w: no fence for lock %q", ErrMissing, t.Lock)
	}
	return nil
}

// validateName accepts what can be the name of a lock.
func validateName(name string) error {
	switch {
	case name == "" || len(name) > maxName:
		return fmt.Errorf("%w name of a lock: want 1 to %d bytes, got %d", conclave.ErrInvalid, maxName, len(name))
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return fmt.Errorf("%w name of a lock: want UTF-8 without NUL, got %q", conclave.ErrInvalid, name)
	}
	return nil
}

// Format returns the value of the header for the tokens, which [Parse] accepts. It returns
// conclave.ErrInvalid for an invalid name, for a name that occurs twice and for more than 16
// tokens, and ErrMissing for fence 0.
func Format(tokens ...Token) (string, error) {
	var b strings.Builder
	for i, t := range tokens {
		if err := t.validate(); err != nil {
			return "", err
		}
		if _, twice := find(tokens[:i], t.Lock); twice || i == maxTokens {
			return "", fmt.Errorf("%w: want at most %d tokens for different locks", ErrMalformed, maxTokens)
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(t.String())
	}
	return b.String(), nil
}

// Parse returns the tokens in the values of a header, in their order: one value for each line
// that the header has. It returns ErrMalformed if any of it is malformed, and no tokens for no
// values.
func Parse(values []string) ([]Token, error) {
	var tokens []Token
	for _, value := range values {
		for element := range strings.SplitSeq(value, ",") {
			t, err := parse(strings.Trim(element, " \t"))
			if err != nil {
				return nil, err
			}
			if _, twice := find(tokens, t.Lock); twice {
				return nil, fmt.Errorf("%w: lock %q occurs twice", ErrMalformed, t.Lock)
			}
			if len(tokens) == maxTokens {
				return nil, fmt.Errorf("%w: want at most %d tokens", ErrMalformed, maxTokens)
			}
			tokens = append(tokens, t)
		}
	}
	return tokens, nil
}

func parse(element string) (Token, error) {
	escaped, number, found := strings.Cut(element, "=")
	if !found || len(element) > 4*maxName { // a name in escapes has three times its length
		return Token{}, fmt.Errorf("%w: want name=fence, got %.64q", ErrMalformed, element)
	}
	name, ok := unescape(escaped)
	if !ok || validateName(name) != nil {
		return Token{}, fmt.Errorf("%w: invalid name %.64q: want 1 to %d bytes of UTF-8 with others than letters, digits and %s as %%XX",
			ErrMalformed, escaped, maxName, plainMarks)
	}
	f, err := conclave.ParseFence(number)
	if err != nil {
		return Token{}, fmt.Errorf("%w: invalid fence %.64q: want count or epoch:count", ErrMalformed, number)
	}
	return Token{name, f}, nil
}

func find(tokens []Token, lock string) (conclave.Fence, bool) {
	for _, t := range tokens {
		if t.Lock == lock {
			return t.Fence, true
		}
	}
	return 0, false
}

// plainMarks stand for themselves in a name, as letters and digits do. They are the unreserved
// marks of RFC 3986, those that encodeURIComponent leaves, and separators of names. Not among
// them is the plus sign, which some encoders use for a space.
const plainMarks = "-._~/:@!$&'()*"

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte(plainMarks, c) >= 0
}

func escape(name string) string {
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func unescape(escaped string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(escaped); i++ {
		c := escaped[i]
		if c == '%' && i+2 < len(escaped) {
			n, err := strconv.ParseUint(escaped[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			c, i = byte(n), i+2
		} else if !isPlain(c) {
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}
