package budget

import "testing"

// Each user has an equal part, and the least in any case. A user that takes no more leaves its part to the others.
func TestBudget_EqualParts(t *testing.T) {
	const size, least = 1000, 10
	b := New(size, least)
	if n := b.Allowed(5000); n != size {
		t.Errorf("%d bytes are allowed where nothing is taken", n)
	}
	users := make([]int, 4)
	for again := true; again; {
		again = false
		for i := range users {
			if users[i] < b.Allowed(size) {
				users[i]++
				b.Take(1)
				again = true
			}
		}
	}
	for i, n := range users {
		if n != size/(len(users)+1) {
			t.Errorf("user %d has %d bytes, want %d", i, n, size/(len(users)+1))
		}
	}
	if n := b.Allowed(50); n != 50 {
		t.Errorf("%d bytes are allowed, more than the user's own bound", n)
	}
	b.Take(b.Allowed(size))
	if n := b.Allowed(size); n != least {
		t.Errorf("%d bytes are allowed beside users that have all, want %d", n, least)
	}
	if b.Take(-b.Taken()); b.Allowed(size) != size {
		t.Errorf("%d bytes are allowed where nothing is taken any more", b.Allowed(size))
	}
}

func TestBudget_NoneBoundsNothing(t *testing.T) {
	var none *Budget
	if none.Take(5); none.Taken() != 0 || none.Allowed(7) != 7 {
		t.Errorf("%d bytes are taken, and %d allowed of 7", none.Taken(), none.Allowed(7))
	}
}
