package nic

import (
	"math/rand/v2"
	"testing"

	"github.com/fabrictest/fabrictest/verbs"
)

// model is a simple, slow Table: lists of all regions and windows, including removed ones.
type model struct {
	regions []*Region
	removed map[*Region]bool
	windows []*modelWindow
}

type modelWindow struct {
	w     *Window
	freed bool
	on    *Region // nil while unbound
	qpn   uint32
}

// permits reports whether a peer on qpn may read the first byte of key.
func (m *model) permits(key, qpn uint32) bool {
	for _, r := range m.regions {
		if r.Key == key && !m.removed[r] {
			return true
		}
	}
	for _, w := range m.windows {
		if w.w.Key == key && !w.freed {
			return w.on != nil && (w.w.Type == verbs.MWType1 || w.qpn == qpn)
		}
	}
	return false
}

func (m *model) windowsOn(r *Region) (n int) {
	for _, w := range m.windows {
		if w.on == r {
			n++
		}
	}
	return n
}

func (m *model) step(t *testing.T, tab *Table, rng *rand.Rand) {
	qpn := qpA + rng.Uint32N(2)
	switch rng.IntN(7) {
	case 0:
		if r, err := tab.Register(pdA, Bytes(make([]byte, 64)), 0, false, everything); err == nil {
			m.regions = append(m.regions, r)
		}
	case 1:
		if w, err := tab.AllocWindow(pdA, verbs.MWType1+verbs.MWType(rng.IntN(2))); err == nil {
			m.windows = append(m.windows, &modelWindow{w: w})
		}
	case 2:
		tab.UnbindQP(qpn)
		for _, w := range m.windows {
			if w.w.Type == verbs.MWType2 && w.qpn == qpn {
				w.on = nil
			}
		}
	case 3:
		if len(m.regions) == 0 {
			return
		}
		r := m.regions[rng.IntN(len(m.regions))]
		legal := !m.removed[r] && m.windowsOn(r) == 0
		if err := tab.Deregister(r); (err == nil) != legal {
			t.Fatalf("Deregister of %#x with %d windows, removed %v: %v", r.Key, m.windowsOn(r), m.removed[r], err)
		}
		m.removed[r] = m.removed[r] || legal
	default:
		if len(m.windows) > 0 {
			m.stepWindow(t, tab, rng, m.windows[rng.IntN(len(m.windows))], qpn)
		}
	}
}

func (m *model) stepWindow(t *testing.T, tab *Table, rng *rand.Rand, w *modelWindow, qpn uint32) {
	type2 := w.w.Type == verbs.MWType2
	switch rng.IntN(4) {
	case 0:
		if tab.FreeWindow(w.w) == w.freed {
			t.Fatalf("FreeWindow of %#x, freed before: %v", w.w.Key, w.freed)
		}
		w.freed, w.on = true, nil
	case 1:
		legal := !w.freed && type2 && w.on != nil && w.qpn == qpn
		if w.freed {
			return // another window may have its key
		}
		if err := tab.Invalidate(w.w.Key, pdA, qpn); (err == nil) != legal {
			t.Fatalf("Invalidate of %#x on %#x: %v", w.w.Key, qpn, err)
		}
		if legal {
			w.on = nil
		}
	default:
		if len(m.regions) == 0 {
			return
		}
		r := m.regions[rng.IntN(len(m.regions))]
		b := Bind{
			Region: r, Addr: r.Addr, Len: 8, Access: verbs.AccessRemoteRead, PD: pdA, QPN: qpn,
			Key: w.w.Key&^0xff | rng.Uint32N(4),
		}
		legal := !w.freed && !m.removed[r] && (!type2 || w.on == nil)
		if err := tab.Bind(w.w, b); (err == nil) != legal {
			t.Fatalf("Bind of %#x to %#x: %v, want success %v", w.w.Key, r.Key, err, legal)
		}
		if legal {
			w.on, w.qpn = r, qpn
		}
	}
}

func TestTableMatchesModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tab := NewTable(12)
		m := &model{removed: map[*Region]bool{}}
		for range 600 {
			m.step(t, tab, rng)
			for _, r := range m.regions {
				m.compare(t, tab, seed, r.Key, r.Addr)
			}
			for _, w := range m.windows {
				addr := uint64(0)
				if w.on != nil {
					addr = w.on.Addr
				}
				m.compare(t, tab, seed, w.w.Key, addr)
			}
		}
	}
}

func (m *model) compare(t *testing.T, tab *Table, seed uint64, key uint32, addr uint64) {
	t.Helper()
	for _, qpn := range []uint32{qpA, qpB} {
		_, _, err := tab.Remote(key, TargetQP{pdA, qpn}, addr, 1, verbs.AccessRemoteRead)
		// A key may have passed from one object to another: then the address of
		// the one is none of the other's, and only refusals can be compared.
		if err == nil && !m.permits(key, qpn) {
			t.Fatalf("seed %d: key %#x works on QP %#x", seed, key, qpn)
		}
		if err == ErrKey && m.permits(key, qpn) {
			t.Fatalf("seed %d: key %#x does not work on QP %#x", seed, key, qpn)
		}
	}
}
