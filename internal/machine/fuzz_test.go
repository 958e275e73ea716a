package machine

import (
	"bytes"
	"testing"
)

// Any bytes as the entries of a log: never a panic, never a broken machine,
// and always what the reference says. The data is cut into entries at the
// marks of a length byte. With -fuzz, add -fuzzminimizetime=10x: the engine
// otherwise spends a minute on shortening each log that it finds new.
func FuzzApply(f *testing.F) {
	for seed := range uint64(3) {
		g, r := newGenerator(seed+1), newRig()
		var log []byte
		for len(log) < 2_000 {
			if data := g.entry(&r.twin); len(data) < 256 {
				log = append(append(log, byte(len(data))), data...)
				if err := r.apply(data); err != nil {
					f.Fatal(err)
				}
			}
		}
		f.Add(log)
	}
	f.Fuzz(func(t *testing.T, log []byte) {
		r := newRig()
		for len(log) > 0 {
			n := min(int(log[0]), len(log)-1)
			data := bytes.Clone(log[1 : 1+n])
			log = log[1+n:]
			if err := r.apply(data); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.reload(); err != nil {
			t.Fatal(err)
		}
	})
}

// Any two pairs as the stored state: a machine that holds together, or an error.
func FuzzLoad(f *testing.F) {
	d := newDriver(f)
	for k, v := range d.disk {
		f.Add([]byte(k), v, []byte("lx"), []byte{})
	}
	f.Fuzz(func(t *testing.T, k1, v1, k2, v2 []byte) {
		d := disk{string(k1): v1, string(k2): v2}
		m, err := Load(d.pairs())
		if err != nil {
			return
		}
		if err := audit(m); err != nil {
			t.Fatal(err)
		}
	})
}
