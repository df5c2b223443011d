package show

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/capture"
)

// Filter selects packets. Of several values of one kind any may match; of
// several kinds all must. The zero Filter selects everything.
type Filter struct {
	QPs        []uint32 // destination, or source of a datagram
	PSNs       []Range
	Ops        []string // patterns, as CheckOp takes them
	Hosts      []string // addresses, prefixes or names
	OnlyMarked bool     // only packets that bear a mark
}

// Range is a range of numbers, both ends included. If First is greater than
// Last, it goes on from 0 after the largest PSN.
type Range struct{ First, Last uint32 }

// ParseRange reads "7", "7-12" or "0xfffff0-3".
func ParseRange(s string) (Range, error) {
	first, last, is := strings.Cut(s, "-")
	if !is {
		last = first
	}
	a, err := parse24(first)
	if err != nil {
		return Range{}, err
	}
	b, err := parse24(last)
	return Range{a, b}, err
}

// ParseQP reads the number of a queue pair.
func ParseQP(s string) (uint32, error) { return parse24(s) }

func parse24(s string) (uint32, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 0, 24)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of 24 bits, such as 17 or 0x11", s)
	}
	return uint32(v), nil
}

// ValidateOpPattern reports what is wrong with a pattern for names of messages.
func ValidateOpPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q is no pattern such as 'RC SEND*' or '*READ*': %w", pattern, err)
	}
	return nil
}

func (r Range) holds(v uint32) bool {
	if r.First > r.Last {
		return v >= r.First || v <= r.Last
	}
	return v >= r.First && v <= r.Last
}

// match reports whether p is selected.
func (f *Filter) match(s *capture.Stream, p *capture.Packet) bool {
	if f.OnlyMarked && len(p.Marks) == 0 {
		return false
	}
	if len(f.Hosts) > 0 && !f.host(s, p.IP.Src) && !f.host(s, p.IP.Dst) {
		return false
	}
	if len(f.QPs) == 0 && len(f.PSNs) == 0 && len(f.Ops) == 0 {
		return true
	}
	for i := range p.PDUs {
		if f.pdu(&p.PDUs[i]) {
			return true
		}
	}
	// What has no messages is known by its protocol.
	return len(p.PDUs) == 0 && len(f.QPs) == 0 && len(f.PSNs) == 0 && f.op(p.Protocol)
}

// pdu reports whether one message has all that is asked for.
func (f *Filter) pdu(d *capture.PDU) bool {
	r := d.RoCE
	if len(f.QPs) > 0 && (r == nil || !f.qp(r)) {
		return false
	}
	if len(f.PSNs) > 0 && (r == nil || !f.psn(uint32(r.BTH.PSN))) {
		return false
	}
	return len(f.Ops) == 0 || f.op(d.Op()) || f.op(d.Aliases()...)
}

func (f *Filter) qp(r *capture.RoCE) bool {
	for _, qp := range f.QPs {
		if r.BTH.DestQP == qp || r.DETH.SrcQP == qp && r.DETH.SrcQP != 0 {
			return true
		}
	}
	return false
}

func (f *Filter) psn(v uint32) bool {
	for _, r := range f.PSNs {
		if r.holds(v) {
			return true
		}
	}
	return false
}

// op matches names without regard to case; a space may be written as "_".
func (f *Filter) op(names ...string) bool {
	fold := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "_")) }
	for _, pattern := range f.Ops {
		for _, name := range names {
			if ok, _ := path.Match(fold(pattern), fold(name)); ok {
				return true
			}
		}
	}
	return false
}

func (f *Filter) host(s *capture.Stream, a netip.Addr) bool {
	if !a.IsValid() {
		return false
	}
	name, named := s.Host(a)
	for _, want := range f.Hosts {
		if addr, err := netip.ParseAddr(want); err == nil {
			if addr == a {
				return true
			}
			continue
		}
		if prefix, err := netip.ParsePrefix(want); err == nil {
			if prefix.Contains(a) {
				return true
			}
			continue
		}
		if named && strings.EqualFold(name, want) {
			return true
		}
	}
	return false
}
