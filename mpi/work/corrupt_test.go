package work_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/lab/mpihost"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/env"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/mpi/work"
)

// damaging hands a rank what its carrier does, but for one message of all ranks', of
// which it changes a byte: what no network that is allowed to run may do.
type damaging struct {
	mpi.Upper
	seen *int // messages so far
	at   int  // which to change
	did  *bool
}

func (d damaging) Arrived(peer int, h *wire.Header, data []byte) error {
	if len(data) >= 32 { // so that what results are gathered with is left alone
		if *d.seen++; *d.seen == d.at {
			*d.did = true
			data = slices.Clone(data)
			data[len(data)/2&^7+6] ^= 0x40
		}
	}
	return d.Upper.Arrived(peer, h, data)
}

// damage runs a workload with one message changed. It returns how many messages there
// were, and what ranks have ended with.
func damage(wl *work.Workload, at int) (seen int, did bool, errs []error) {
	o := mpi.Options{}
	o.P2P.EagerLimit = 64 << 10 // everything comes as a word
	o.Open = func(e *env.Env, up mpi.Upper) (mpi.Carrier, error) {
		return mpi.OverVerbs(carrier.Config{Packet: 65 << 10})(e, damaging{up, &seen, at, &did})
	}
	p := work.Params{}
	if wl.Sized {
		p.Bytes = 1000
	}
	_, out, _ := inWorld(mpihost.Fabric{Ranks: 4, Limit: time.Minute}, o, wl, p)
	for _, r := range out.Ranks {
		errs = append(errs, r.Err)
	}
	return seen, did, errs
}

// A byte that is wrong is found, by a rank that says where, whichever message it is in.
// Of hpl's candidates for a pivot only one is taken: nobody looks at the others. What
// putget carries does not come in messages.
func TestWrongDataIsFound(t *testing.T) {
	const tries = 3
	least := map[string]int{"hpl": 1, "putget": 0}
	for _, wl := range work.All() {
		messages, _, errs := damage(wl, -1)
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%s: %v", wl.Name, err)
			continue
		}
		found := 0
		for i := range tries {
			at := messages * (i + 1) / (tries + 2)
			_, did, errs := damage(wl, at)
			var wrong *work.WrongError
			if errors.As(errors.Join(errs...), &wrong) && wrong.Place != "" && wrong.Want != wrong.Got {
				found++
			} else if did {
				t.Logf("%s: message %d of %d is not missed: %v", wl.Name, at, messages, errs)
			}
		}
		want := tries
		if n, ok := least[wl.Name]; ok {
			want = n
		}
		if found < want {
			t.Errorf("%s: of %d changed messages %d were found", wl.Name, tries, found)
		}
	}
}
