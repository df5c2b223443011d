package traffic

import (
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/verbs"
)

// recorder records the work request IDs that were posted to it.
type recorder struct{ ids []uint64 }

func (q *recorder) PostRecv(wrs []verbs.RecvWR) (int, error) {
	for _, wr := range wrs {
		q.ids = append(q.ids, wr.WRID)
	}
	return len(wrs), nil
}

func TestRecvRingReportsWrongCompletions(t *testing.T) {
	for _, tc := range []struct {
		name   string
		shared bool
		order  []int // of completions, by number of posting
		errs   []string
	}{
		{"in order", false, []int{0, 1, 2}, []string{"", "", ""}},
		{"twice", false, []int{0, 0}, []string{"", "had completed before"}},
		// The receives that were overtaken complete without another report.
		{"overtaken", false, []int{2, 0, 1}, []string{"receive 2 completed before receive 0", "", ""}},
		{"shared", true, []int{2, 0, 1}, []string{"", "", ""}},
	} {
		q := new(recorder)
		r := NewRecvRing(5, 3, tc.shared)
		r.Attach(q)
		if n, err := r.Post(3); n != 3 || err != nil {
			t.Fatal(n, err)
		}
		for i, k := range tc.order {
			if ring, ok := RingOf(q.ids[k]); ring != 5 || !ok {
				t.Errorf("ring %d, %v", ring, ok)
			}
			_, err := r.Complete(q.ids[k])
			if (err == nil) != (tc.errs[i] == "") || err != nil && !strings.Contains(err.Error(), tc.errs[i]) {
				t.Errorf("%s: completion %d: %v, want %q", tc.name, i, err, tc.errs[i])
			}
		}
	}
}

// A completion of a slot that was posted again since is not one of the new receive.
func TestRecvRingDetectsStaleCompletion(t *testing.T) {
	q := new(recorder)
	r := NewRecvRing(0, 1, false)
	r.Attach(q)
	for range 2 {
		must.Get(r.Post(1))(t)
		if len(q.ids) == 2 {
			break
		}
		if slot, err := r.Complete(q.ids[0]); slot != 0 || err != nil {
			t.Fatal(slot, err)
		}
	}
	if _, err := r.Complete(q.ids[0]); err == nil {
		t.Error("a stale completion is accepted")
	}
	if r.Outstanding() != 1 || r.Posted() != 2 {
		t.Errorf("%d outstanding, %d posted", r.Outstanding(), r.Posted())
	}
}

func TestRecvRingDoesNotAllocate(t *testing.T) {
	q := &recorder{ids: make([]uint64, 0, 64)}
	r := NewRecvRing(0, 16, false)
	r.Attach(q)
	if n := testing.AllocsPerRun(100, func() {
		q.ids = q.ids[:0]
		_, err := r.Post(16)
		for _, id := range q.ids {
			if _, wrong := r.Complete(id); err != nil || wrong != nil {
				t.Fatal(err, wrong)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
