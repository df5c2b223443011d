package capture

import (
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
)

// Filter selects packets that match all non-empty fields; a field matches if one of its
// values does.
type Filter struct {
	QPs        []uint32 // destination QP, or source QP of a datagram
	PSNs       []Range
	Ops        []string // glob patterns, see ValidateOpPattern
	Hosts      []string // addresses, prefixes or names
	OnlyMarked bool     // only packets with a mark
}

// Range is an inclusive range of 24-bit numbers. If First > Last, it wraps.
type Range struct{ First, Last uint32 }

// ParseRange parses "7", "7-12" or "0xfffff0-3".
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

// ParseQP parses a queue pair number.
func ParseQP(s string) (uint32, error) { return parse24(s) }

func parse24(s string) (uint32, error) {
	v, err := strconv.ParseUint(strings.TrimSpace(s), 0, 24)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of 24 bits, such as 17 or 0x11", s)
	}
	return uint32(v), nil
}

// ValidateOpPattern checks the syntax of a glob pattern for operation names.
func ValidateOpPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q is no pattern such as 'RC SEND*' or '*READ*': %w", pattern, err)
	}
	return nil
}

func (r Range) contains(v uint32) bool {
	if r.First > r.Last {
		return v >= r.First || v <= r.Last
	}
	return v >= r.First && v <= r.Last
}

// match reports whether p is selected.
func (f *Filter) match(s *Stream, p *Packet) bool {
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
	// For packets without PDUs, Ops applies to the protocol.
	return len(p.PDUs) == 0 && len(f.QPs) == 0 && len(f.PSNs) == 0 && f.op(p.Protocol)
}

// pdu reports whether a PDU matches QPs, PSNs and Ops.
func (f *Filter) pdu(d *PDU) bool {
	r := d.RoCE
	if len(f.QPs) > 0 && (r == nil || !f.qp(r)) {
		return false
	}
	if len(f.PSNs) > 0 && (r == nil || !f.psn(uint32(r.BTH.PSN))) {
		return false
	}
	return len(f.Ops) == 0 || f.op(d.Op()) || f.op(d.Aliases()...)
}

func (f *Filter) qp(r *RoCE) bool {
	for _, qp := range f.QPs {
		if r.BTH.DestQP == qp || r.DETH.SrcQP == qp && r.DETH.SrcQP != 0 {
			return true
		}
	}
	return false
}

func (f *Filter) psn(v uint32) bool {
	for _, r := range f.PSNs {
		if r.contains(v) {
			return true
		}
	}
	return false
}

// op reports whether a name matches Ops. It ignores case and treats "_" as a space.
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

// host reports whether the filter lists an address, its prefix or its host name.
func (f *Filter) host(s *Stream, a netip.Addr) bool {
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
