package conclave_test

import (
	"errors"
	"testing"

	"github.com/conclave-go/conclave"
)

func TestGuard_Check(t *testing.T) {
	var g conclave.Guard
	for _, step := range []struct {
		name string
		f    conclave.Fence
		want error
	}{
		{"a", 5, nil}, {"a", 5, nil}, {"a", 4, conclave.ErrStaleFence}, {"b", 1, nil}, {"a", 6, nil}, {"a", 5, conclave.ErrStaleFence}, {"a", 0, conclave.ErrInvalid},
	} {
		if err := g.Check(step.name, step.f); !errors.Is(err, step.want) {
			t.Fatalf("%+v: %v", step, err)
		}
	}
}

func TestGuard_Forget(t *testing.T) {
	var g conclave.Guard
	g.Forget("never seen")
	for _, name := range []string{"a", "b"} {
		if err := g.Check(name, 5); err != nil {
			t.Fatal(err)
		}
	}
	g.Forget("a")
	if err := g.Check("a", 4); err != nil {
		t.Errorf("a forgotten name: %v", err)
	}
	if err := g.Check("b", 4); !errors.Is(err, conclave.ErrStaleFence) {
		t.Errorf("another name: %v", err)
	}
}

func TestGuard_StaleFenceErrorHasBothFences(t *testing.T) {
	var g conclave.Guard
	if err := g.Check("a", 1<<48|7); err != nil {
		t.Fatal(err)
	}
	err := g.Check("a", 5)
	var stale *conclave.StaleFenceError
	if !errors.As(err, &stale) || stale.Presented != 5 || stale.Largest != 1<<48|7 {
		t.Errorf("got %#v", stale)
	}
	if want := `conclave: check "a": stale fence: 5 came after 1:7`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
}
