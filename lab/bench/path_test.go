package bench

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/internal/must"
)

func TestPathWithFullLoss(t *testing.T) {
	must.Do(t, try(t, "softroce", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		u, err := newDatagrams(b, b.Device)
		if err != nil {
			return err
		}
		for _, path := range []conformance.Path{{LossPPM: 1_000_000}, {}} {
			if err := b.SetPath(path); err != nil {
				return err
			}
			_, packet := rawSend(b.Peers[0], b.Local[0], u.qp.QPN(), "hello")
			if err := b.Wire.Send(packet); err != nil {
				return err
			}
			_, err := u.next(time.Millisecond)
			if lost := path.LossPPM > 0; (err != nil) != lost {
				return fmt.Errorf("with %+v: %w", path, err)
			}
		}
		return nil
	}))
}

func TestPathOfStreamsIsUnsupported(t *testing.T) {
	must.Do(t, try(t, "softiwarp", conformance.BenchSpec{}, func(b *conformance.Bench) error {
		if err := b.SetPath(conformance.Path{}); err != nil {
			return err
		}
		if err := b.SetPath(conformance.Path{LossPPM: 1}); !errors.Is(err, conformance.ErrBenchCannot) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	}))
}
