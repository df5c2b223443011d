package mpirun

import (
	"context"
	"fmt"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/netns"
	"github.com/fabrictest/fabrictest/scenarios"
	"github.com/fabrictest/fabrictest/verbs/ibv"
)

// Names of tiers.
const (
	onSim   = "sim"
	onNetNS = "netns"
	// onDevice is not a value of --on: --device and --hosts select it.
	onDevice = "device"
)

// Tier is where ranks run: in the simulator, in network namespaces, or on devices of this machine or of
// several hosts.
type Tier struct {
	Name string
	// Start starts ranks, and returns when all have ended.
	Start func(context.Context, Config) (Result, error)
	// WhySimulated is the reason for the simulation if the user named no tier; else empty.
	WhySimulated string
}

// Tiers returns the names of the tiers.
func Tiers() []string { return []string{onSim, onNetNS} }

// FindTier returns the tier that --on names. If on is empty, it returns namespaces, or the
// simulation if they are not available; cables in shared memory need no namespaces. A platform (the
// costs of a machine) exists in the simulation only: with one, FindTier returns the simulation.
func FindTier(on, platform string, cable scenarios.CableKind) (Tier, error) {
	unavailable := error(nil)
	switch {
	case platform != "" && on == onNetNS:
		return Tier{}, cli.Errorf("--platform: in namespaces time is real; leave out --on netns")
	case platform != "" && on == "":
		on = onSim
	case on == "" && cable == scenarios.SharedMemory:
		on = onNetNS
	case on == "":
		on = onNetNS
		if unavailable = netns.Available(); unavailable != nil {
			on = onSim
		}
	}
	switch on {
	case onSim:
		t := Tier{Name: onSim, Start: InSimulation}
		if unavailable != nil {
			t.WhySimulated = unavailable.Error()
		}
		return t, nil
	case onNetNS:
		return Tier{Name: onNetNS, Start: InNamespaces}, nil
	}
	return Tier{}, cli.Errorf("--on %s: give sim or netns", on)
}

// DeviceTier returns the tier of ranks on devices of libibverbs. It is an error if this program was
// built without that.
func DeviceTier() (Tier, error) {
	if !ibv.Linked {
		_, err := ibv.Provider{}.Devices() // the error tells how to build the program
		return Tier{}, cli.Errorf("--device: %w", err)
	}
	start := func(ctx context.Context, c Config) (Result, error) { return OnDevices(ctx, ibv.Provider{}, c) }
	return Tier{Name: onDevice, Start: start}, nil
}

// HostsTier returns the tier of ranks on several hosts, over devices of libibverbs or emulated NICs.
func HostsTier(c *Config) (Tier, error) {
	if len(c.Devices) > 0 {
		if _, err := DeviceTier(); err != nil {
			return Tier{}, err
		}
	}
	return Tier{Name: onDevice, Start: OnHosts}, nil
}

// CommandLine returns the command line with which a user can repeat a run. program is the launcher,
// on the tier (where the ranks run, such as "sim"), and words the MPI program or workload with its
// arguments. It leaves out flags that have their default value or change only the output.
func (s *Settings) CommandLine(program, on string, c *Config, words []string) string {
	all := []string{program, fmt.Sprintf("-n %d", c.Ranks)}
	rails, perHost := fmt.Sprint(c.Rails), fmt.Sprint(c.PerHost)
	if on != onDevice {
		all = append(all, "--on "+on)
	} else {
		rails = "1" // each device is a rail
	}
	hosts := make([]string, len(c.Hosts))
	for i, h := range c.Hosts {
		hosts[i], perHost = h.String(), "1" // hosts have their own numbers
	}
	for _, f := range []struct {
		name, value, defaultValue string
	}{
		{"per-host", perHost, "1"},
		{"hosts", strings.Join(hosts, ","), ""},
		{"launcher", strings.Join(c.Remote.Launcher, " "), ""},
		{"remote-path", c.Remote.Program, ""},
		{"device", strings.Join(c.Devices, ","), ""},
		{"netdev", strings.Join(c.NetDevs, ","), ""},
		{"rails", rails, "1"},
		{"provider", c.Provider, ""},
		{"platform", c.Platform, ""},
		{"cable", string(c.Cable), ""},
		{"no-icrc", fmt.Sprint(c.ICRCOffloaded), "false"},
		{"mtu", fmt.Sprint(c.MTU), "0"},
		{"loss", s.Loss, "0%"},
		{"seed", fmt.Sprint(c.Seed), "1"},
		{"design", s.Design, ""},
		{"protocol", s.Protocol, ""},
		{"progress", s.Progress, ""},
		{"eager", fmt.Sprint(s.EagerLimit), "0"},
		{"collectives", s.Collectives, ""},
		{"arrivals", fmt.Sprint(s.Arrivals), "false"},
		{"check", strings.Join(c.Checkers, ","), ""},
		{"limit", c.Limit.String(), "0s"},
		{"keep-going", fmt.Sprint(c.KeepGoing), "false"},
		{"bind", fmt.Sprint(c.Bind), "false"},
	} {
		if f.value != f.defaultValue {
			all = append(all, "--"+f.name+"="+cli.Quote(f.value))
		}
	}
	for _, word := range words {
		all = append(all, cli.Quote(word))
	}
	return strings.Join(all, " ")
}
