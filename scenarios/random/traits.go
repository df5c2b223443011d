package random

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Adapt makes a lane suitable for the transport: it removes missing operations, and without
// RNR it makes room for all receives at the start.
func (l *Lane) Adapt(m *traffic.TransportTraits) {
	lacks := func(op verbs.WROpcode) bool { return slices.Contains(m.MissingOps, op) }
	l.Mix = slices.DeleteFunc(slices.Clone(l.Mix), lacks)
	if lacks(verbs.OpBindMW) {
		l.Windows = 0
	}
	if m.NoRNR {
		l.RecvDepth, l.RecvPacing = max(l.Messages[A], l.Messages[B], 1), Pacing{}
	}
}

// transportProblems lists what a lane needs and the transport lacks.
func (l *Lane) transportProblems(m *traffic.TransportTraits) (errs []error) {
	for _, op := range m.MissingOps {
		if slices.Contains(l.Mix, op) {
			errs = append(errs, fmt.Errorf("Mix has %v, which the transport lacks", op))
		}
	}
	if m.ConnectsByCM && l.Service != RC {
		errs = append(errs, errors.New("the transport has connections only, of RC"))
	}
	if m.NoRNR && l.RecvDepth < max(l.Messages[A], l.Messages[B]) {
		errs = append(errs, fmt.Errorf("%d receives for %d messages: a message without a posted receive ends the connection", l.RecvDepth, max(l.Messages[A], l.Messages[B])))
	}
	return errs
}
