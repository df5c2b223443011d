package interop

import (
	"errors"
	"fmt"
	"strings"
)

// Faults are what the guest's soft-iWARP was seen to do wrong. They are known, they
// are put up with, and they are told: a case may pass in spite of them.
type Faults struct {
	// Stalls are connections whose first frames the guest took and did not read: it
	// answers MPA's request before it is ready for what follows. Such a case is
	// begun anew.
	Stalls int
	// Frames are the guest's, DirtyPads those with a pad that is not zeros, BadCRCs
	// those with a wrong CRC.
	Frames, DirtyPads, BadCRCs int
	// Terminates are the guest's, Mangled those whose bits are in a wrong order.
	Terminates, Mangled int
	// Unread are connections that could not be watched to their end.
	Unread int
}

func (f *Faults) add(o Faults) {
	f.Stalls += o.Stalls
	f.Frames += o.Frames
	f.DirtyPads += o.DirtyPads
	f.BadCRCs += o.BadCRCs
	f.Terminates += o.Terminates
	f.Mangled += o.Mangled
	f.Unread += o.Unread
}

// String lists the faults; with none it is empty.
func (f Faults) String() string {
	var list []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			list = append(list, fmt.Sprintf(format, args...))
		}
	}
	add(f.Stalls, "first frame left lying %d times", f.Stalls)
	add(f.DirtyPads, "pad not zero in %d of %d frames", f.DirtyPads, f.Frames)
	add(f.BadCRCs, "CRC wrong in %d of %d frames", f.BadCRCs, f.Frames)
	add(f.Mangled, "%d of %d Terminates mangled", f.Mangled, f.Terminates)
	add(f.Unread, "%d connections not watched to the end", f.Unread)
	return strings.Join(list, ", ")
}

func faultsOf(r TapReport) Faults {
	return Faults{
		Frames: r.Theirs.FPDUs, DirtyPads: r.Theirs.DirtyPads, BadCRCs: r.Theirs.BadCRCs,
		Terminates: r.Theirs.Terminates, Mangled: r.Theirs.Mangled, Unread: r.Unread,
	}
}

// judgeWire says whether our device kept the rules on the wire, where a fault is not
// put up with, and whether the CRC was used that the case is about.
func judgeWire(c Case, r TapReport) error {
	var errs []error
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("on the wire: "+format, args...))
		}
	}
	expect(r.Ours.BadCRCs == 0, "the CRC of %d of our %d frames is wrong", r.Ours.BadCRCs, r.Ours.FPDUs)
	expect(r.Ours.DirtyPads == 0, "the pad of %d of our %d frames is not zeros", r.Ours.DirtyPads, r.Ours.FPDUs)
	expect(r.Ours.Terminates == 0, "we sent %d Terminates", r.Ours.Terminates)
	if r.Unread > 0 {
		return errors.Join(errs...) // the rest cannot be known
	}
	expect(r.Connections == c.connections(), "%d connections were agreed on, want %d", r.Connections, c.connections())
	want := 0
	if c.Variant == withCRC {
		want = r.Connections
	}
	expect(r.WithCRC == want, "a CRC was agreed on in %d of %d connections, want %d", r.WithCRC, r.Connections, want)
	return errors.Join(errs...)
}
