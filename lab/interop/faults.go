package interop

import (
	"errors"
	"fmt"
	"strings"
)

// Faults counts the known faults of the guest's soft-iWARP. A case may pass in spite of them.
type Faults struct {
	// Stalls are connections whose first frames the guest acknowledged and did not read: it
	// sends the MPA reply before it is ready to receive. The case is then repeated.
	Stalls int
	Side       // frames of the guest
	Unread int // connections that could not be read to their end
}

func (f *Faults) add(o Faults) {
	f.Stalls += o.Stalls
	f.Side.add(o.Side)
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
	add(f.DirtyPads, "pad not zero in %d of %d frames", f.DirtyPads, f.FPDUs)
	add(f.BadCRCs, "CRC wrong in %d of %d frames", f.BadCRCs, f.FPDUs)
	add(f.Mangled, "%d of %d Terminates mangled", f.Mangled, f.Terminates)
	add(f.Unread, "%d connections not watched to the end", f.Unread)
	return strings.Join(list, ", ")
}

// judgeWire returns the faults of our own device, none of which is allowed, and whether the
// connections used a CRC as the case asks.
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
