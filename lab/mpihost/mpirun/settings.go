package mpirun

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/mpi"
	"github.com/fabrictest/fabrictest/mpi/carrier"
	"github.com/fabrictest/fabrictest/mpi/p2p"
	"github.com/fabrictest/fabrictest/mpi/wire"
	"github.com/fabrictest/fabrictest/report/ranks"
	"github.com/fabrictest/fabrictest/scenarios"
)

// MaxRanks is how many ranks fit into the memory of a laptop.
const MaxRanks = 4096

const minMTU = 1280 // of IPv6

// Settings are options of the ranks' runtime as the words of a command line. Empty words and 0
// are the defaults.
type Settings struct {
	Design, Protocol, Progress string
	EagerLimit                 int
	Loss                       string // the share of packets that are lost, as in 1%
}

// Apply checks the settings and the job c, and sets the loss and the options of c. An error
// names the flag that is wrong.
func (s *Settings) Apply(c *Config) (err error) {
	for _, n := range []struct {
		flag     string
		value    int
		min, max int
	}{
		{"ranks", c.Ranks, 1, MaxRanks},
		{"per-host", c.PerHost, 1, MaxRanks},
		{"rails", c.Rails, 1, wire.MaxRails},
		{"mtu", cmp.Or(c.MTU, minMTU), minMTU, 65535}, // 0 is the default
		{"eager", s.EagerLimit, 0, 1 << 30},
	} {
		if n.value < n.min || n.value > n.max {
			return cmdline.Errorf("--%s %d: give %d to %d", n.flag, n.value, n.min, n.max)
		}
	}
	var loss scenarios.Percent
	if err := loss.UnmarshalText([]byte(s.Loss)); err != nil {
		return cmdline.Errorf("--loss %s: %w", s.Loss, err)
	}
	c.LossPPM = loss.PPM()
	options := mpi.Options{Carrier: carrier.Config{Design: carrier.Design(s.Design)}}
	options.P2P.EagerLimit = s.EagerLimit
	if _, err := ChoiceIndex("design", s.Design, Designs()); err != nil {
		return err
	}
	protocol, err := ChoiceIndex("protocol", s.Protocol, Protocols())
	if err != nil {
		return err
	}
	progress, err := ChoiceIndex("progress", s.Progress, ProgressModes())
	if err != nil {
		return err
	}
	options.P2P.Protocol, options.Progress = p2p.Protocol(protocol), mpi.ProgressMode(progress)
	if c.Options, err = json.Marshal(options); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return &cmdline.Error{Err: err}
	}
	return nil
}

// Report returns the description of a job with these settings for a report, without the
// results of its ranks.
func (s *Settings) Report(c *Config) *ranks.Job {
	return &ranks.Job{
		Ranks: c.Ranks, PerHost: c.PerHost, Rails: c.Rails, Provider: c.Provider, LossPPM: c.LossPPM, Design: s.Design,
		Protocol: cmp.Or(s.Protocol, Protocols()[0]), Progress: cmp.Or(s.Progress, ProgressModes()[0]),
	}
}

// ChoiceIndex returns the index of a flag's value among its choices; 0 if the value is empty.
func ChoiceIndex(flag, value string, choices []string) (int, error) {
	i := slices.Index(choices, value)
	if i < 0 && value != "" {
		return 0, cmdline.Errorf("--%s %s: give %s", flag, value, cmdline.Choices(choices))
	}
	return max(i, 0), nil
}

// Designs returns the names of the carrier's designs: the selections of transports between hosts.
func Designs() (names []string) {
	for _, d := range carrier.Designs() {
		names = append(names, string(d))
	}
	return names
}

// Protocols returns the names of the protocols of large messages, in the order of their
// values. The first is the default.
func Protocols() []string {
	return []string{p2p.RGET.String(), p2p.RPUT.String(), p2p.Speculative.String()}
}

// ProgressModes returns the names of the progress modes, in the order of their values. The
// first is the default.
func ProgressModes() []string { return []string{mpi.Polling.String(), mpi.Background.String()} }
