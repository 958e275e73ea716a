package main

import "testing"

// A password is known by a hash alone, so that a comparison shows nothing of it.
func TestSecret(t *testing.T) {
	s := newSecret([]byte("correct horse"))
	for guess, want := range map[string]bool{"correct horse": true, "correct hors": false, "correct horse ": false, "": false, string(s[:]): false} {
		if s.is(guess) != want {
			t.Errorf("%q: %v, want %v", guess, !want, want)
		}
	}
}
