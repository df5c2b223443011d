package perf

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fabrictest/fabrictest/traffic"
	"github.com/fabrictest/fabrictest/verbs"
)

// Registration registers and deregisters memory regions of the client's device, one at a time.
type Registration struct {
	Bytes      int // of a region
	Iterations int // 0 means 1000
	Warmup     int // regions before those that are measured; 0 means a tenth
}

// Run runs one side. The client returns the times of the calls; the server does nothing.
func (r Registration) Run(ctx context.Context, s *Side) (registered, deregistered *traffic.Histogram, err error) {
	if s.Role == Server {
		return nil, nil, nil
	}
	if r.Bytes < 1 {
		return nil, nil, fmt.Errorf("registration of %d bytes: give at least one", r.Bytes)
	}
	pd, err := s.Device.AllocPD()
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	buf := make([]byte, r.Bytes)
	clear(buf) // the pages are there before the first registration
	r.Iterations = cmp.Or(r.Iterations, 1000)
	registered, deregistered = new(traffic.Histogram), new(traffic.Histogram)
	for i := -cmp.Or(r.Warmup, r.Iterations/10); i < r.Iterations && ctx.Err() == nil; i++ {
		began := s.now()
		mr, err := pd.RegMR(verbs.MRInit{Buf: buf, Access: verbs.AccessLocalWrite | verbs.AccessRemoteWrite | verbs.AccessRemoteRead})
		if err != nil {
			return nil, nil, wrap(err, "registration of %d bytes", r.Bytes)
		}
		between := s.now()
		if err := mr.Close(); err != nil {
			return nil, nil, wrap(err, "deregistration of %d bytes", r.Bytes)
		}
		if i >= 0 {
			registered.Add(between - began)
			deregistered.Add(s.now() - between)
		}
	}
	return registered, deregistered, ctx.Err()
}
