package nic

import (
	"fmt"
	"reflect"

	"github.com/fabrictest/fabrictest/verbs"
)

// Limits are the resource limits of a NIC. Zero means the default.
type Limits struct {
	QPs, QPWR, SGE, Inline int
	CQs, CQE               int
	MRs, PDs, AHs          int
	SRQs, SRQWR            int
	XRCDs                  int
	RdAtomic               uint8
	McastGroups, McastQPs  int
	PendingEvents          int
}

// defaultLimits are the limits of a device that is configured without.
func defaultLimits() Limits {
	return Limits{
		QPs: 1 << 17, QPWR: 1 << 14, SGE: 32, Inline: 512,
		CQs: 1 << 16, CQE: 1 << 20,
		MRs: 1 << 19, PDs: 1 << 15, AHs: 1 << 16,
		SRQs: 1 << 15, SRQWR: 1 << 15,
		XRCDs: 1 << 10, RdAtomic: 128,
		McastGroups: 1 << 12, McastQPs: 1 << 8,
		PendingEvents: 1 << 14,
	}
}

// OrDefault returns a copy with defaults for zero limits.
func (l Limits) OrDefault() Limits {
	limits, defaults := reflect.ValueOf(&l).Elem(), reflect.ValueOf(defaultLimits())
	for i := range limits.NumField() {
		if f := limits.Field(i); f.IsZero() {
			f.Set(defaults.Field(i))
		}
	}
	return l
}

// Validate returns an error for negative limits, or more regions than keys can distinguish.
func (l Limits) Validate() error {
	limits := reflect.ValueOf(l)
	for i := range limits.NumField() {
		if f := limits.Field(i); f.CanInt() && f.Int() < 0 {
			return fmt.Errorf("limit of %s is negative", limits.Type().Field(i).Name)
		}
	}
	if l.MRs > MaxEntries {
		return fmt.Errorf("%d memory regions, keys tell %d apart", l.MRs, MaxEntries)
	}
	return nil
}

// CheckCaps returns an error if the capabilities of a QP exceed the limits.
func (b *Base) CheckCaps(c *verbs.QPCaps) error {
	l := b.Limits
	invalid := func(format string, args ...any) error {
		return OpError("create_qp", "", "%w: "+format, append([]any{verbs.ErrInvalid}, args...)...)
	}
	if c.MaxSendWR < 0 || c.MaxSendWR > l.QPWR || c.MaxRecvWR < 0 || c.MaxRecvWR > l.QPWR {
		return invalid("%d send and %d receive requests, limit %d", c.MaxSendWR, c.MaxRecvWR, l.QPWR)
	}
	if c.MaxSendSGE < 0 || c.MaxSendSGE > l.SGE || c.MaxRecvSGE < 0 || c.MaxRecvSGE > l.SGE {
		return invalid("%d send and %d receive scatter/gather entries, limit %d", c.MaxSendSGE, c.MaxRecvSGE, l.SGE)
	}
	if c.MaxInline < 0 || c.MaxInline > l.Inline {
		return invalid("%d bytes inline, limit %d", c.MaxInline, l.Inline)
	}
	return nil
}
