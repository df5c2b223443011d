package mpihost

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/lab/nics"
	"github.com/fabrictest/fabrictest/netns/topology"
	"github.com/fabrictest/fabrictest/verbs"
)

// Defaults of a Fabric. The MTU carries a path MTU of 4096 with its headers.
const (
	defaultRate     = 100_000_000_000
	defaultLatency  = time.Microsecond
	defaultMTU      = 4200
	ethernetFraming = 38
	defaultLimit    = time.Hour
	// defaultEvents ends a run that polls forever while virtual time hardly
	// advances, after some minutes.
	defaultEvents = 1_000_000_000
)

// Fabric is the configuration of a simulation: hosts around one switch, or in a fat tree, for each
// rail.
type Fabric struct {
	// Ranks is the number of ranks, PerHost how many share a host; 0 means 1. Ranks
	// are placed in blocks: 0 to PerHost-1 on host 0.
	Ranks, PerHost int
	// Rails is the number of NICs of a host, each on a separate network; 0 means 1.
	Rails int
	// Leaves and Spines are the switches of each rail's fat tree; without leaves there is one switch.
	Leaves, Spines int
	// Provider is the name in package nics; empty means the default.
	Provider string
	// Setup is the configuration of the NICs. NICs of datagram-iWARP are reliable
	// unless Unreliable is set.
	Setup      nics.Setup
	Unreliable bool
	// IPv4 uses IPv4 addresses.
	IPv4 bool
	// Link configures every cable. Zero fields mean 100 Gb/s, 1 µs and an MTU of 4200.
	Link sim.LinkConfig
	// Impair are random impairments of packets that hosts send. For a provider over
	// TCP only LossPPM is allowed, and costs time.
	Impair []impair.Spec
	// Costs are the virtual times of work on memory, and of verb calls unless those are 0; nil
	// means the defaults of NICs, and no time for work on memory.
	Costs *verbs.Costs
	// MemoryBps is the rate, in bits a second, of the memory bus that the copies of the ranks of a host
	// share; 0: each copy takes as long as alone.
	MemoryBps uint64
	// ChargeWakes makes each wait for an event take Costs.Wake. Otherwise a rank that waits stands for
	// one that polls, and the runtime charges the wakes of its progress tasks.
	ChargeWakes bool
	// NIC is the time that every NIC takes for packets.
	NIC sim.NICCosts
	// Seed is the seed of all random choices. Chooser, Reorder and Faults are those of sim.Config.
	Seed    uint64
	Chooser sim.Chooser
	Reorder time.Duration
	Faults  int
	// Placement is that of sim.PortConfig, for every NIC.
	Placement sim.Placement
	// Limit is the maximum virtual time; 0 means 1 hour. Events is the maximum
	// number of events; 0 means a billion.
	Limit  time.Duration
	Events uint64
	// Script, if not nil, is called once before the ranks run, to schedule faults with World.At.
	Script func(*World)
	// Explain, if not nil, says what the ranks of a run that hangs wait for, for HungError.WaitGraph.
	Explain func() string
	// Stop is that of sim.Config.
	Stop func() error

	stream sim.StreamConfig // of a provider over TCP
}

// withDefaults returns the fabric with defaults for zero fields, and its provider, or an error if
// the fabric is invalid. It sets the provider's option "reliable", if there is one, unless
// f.Unreliable. For a provider over TCP, it converts packet losses to stalls of streams.
func (f Fabric) withDefaults() (Fabric, *nics.Provider, error) {
	f.PerHost, f.Rails = cmp.Or(f.PerHost, 1), cmp.Or(f.Rails, 1)
	f.Limit, f.Events = cmp.Or(f.Limit, defaultLimit), cmp.Or(f.Events, defaultEvents)
	f.Link.RateBps, f.Link.Latency = cmp.Or(f.Link.RateBps, defaultRate), cmp.Or(f.Link.Latency, defaultLatency)
	f.Link.MTU, f.Link.OverheadBytes = cmp.Or(f.Link.MTU, defaultMTU), cmp.Or(f.Link.OverheadBytes, ethernetFraming)
	p, err := nics.Find(f.Provider)
	if err != nil {
		return f, nil, err
	}
	switch {
	case f.Ranks < 1:
		return f, nil, fmt.Errorf("%d ranks: at least one is needed", f.Ranks)
	case f.PerHost < 1:
		return f, nil, fmt.Errorf("%d ranks per host: at least one is needed", f.PerHost)
	}
	f.Provider = p.Name
	options := nics.Options{}
	maps.Copy(options, p.RankOptions)
	if f.Unreliable {
		delete(options, "reliable")
	}
	maps.Copy(options, f.Setup.Options)
	f.Setup.Options = options
	if p.OverTCP {
		f.stream, err = streamConfig(f.Impair)
		f.Impair = nil
	}
	return f, p, err
}

// lossDelay is the mean cost of a lost segment: mostly a round trip for a fast
// retransmit, and 200 ms for a timeout.
const lossDelay = 300 * time.Microsecond

// streamConfig converts the packet losses of specs to stalls of streams, each of lossDelay. It
// returns an error if specs has other impairments.
func streamConfig(specs []impair.Spec) (c sim.StreamConfig, err error) {
	for _, s := range specs {
		if s != (impair.Spec{LossPPM: s.LossPPM}) {
			return c, errors.New("a provider over TCP supports only LossPPM, for the whole run")
		}
		if s.LossPPM > 0 {
			c.StallPPM, c.StallFor = min(c.StallPPM+s.LossPPM, impair.PPM), lossDelay
		}
	}
	return c, nil
}

// nodes returns the index of the host of each rank, by rank.
func (f *Fabric) nodes() []int {
	all := make([]int, f.Ranks)
	for i := range all {
		all[i] = i / f.PerHost
	}
	return all
}

// topology returns hosts around one switch for each rail, or in a fat tree.
func (f *Fabric) topology() (topology.Topology, error) {
	hosts := (f.Ranks + f.PerHost - 1) / f.PerHost
	if f.Leaves > 0 {
		return topology.FatTree(f.Leaves, f.Spines, hosts, topology.Options{Rails: f.Rails})
	}
	return topology.Star(hosts, topology.Options{Rails: f.Rails})
}

// WorldVar is the environment variable with the Job, as JSON, of a process that runs all ranks of a
// simulation. Without it a process is one rank, and gets its Job from the launcher.
const WorldVar = "FABRICTEST_MPI_WORLD"

// Job is the configuration of ranks.
type Job struct {
	Ranks   int `json:"ranks"`
	PerHost int `json:"per_host"`
	// HostRanks is the number of ranks on each host, in blocks; nil if there are PerHost on each.
	HostRanks []int `json:"host_ranks,omitempty"`
	Rails     int   `json:"rails"`
	// Provider is the name in package nics. With ICRCOffloaded, RoCE neither computes nor checks
	// ICRCs.
	Provider      string `json:"provider"`
	ICRCOffloaded bool   `json:"offloaded,omitempty"`
	// MTU is that of every cable, and LossPPM its random loss.
	MTU     int    `json:"mtu,omitempty"`
	LossPPM uint32 `json:"loss_ppm,omitempty"`
	// Platform is the name or the file of the hosts' nics.Platform in a simulation; empty for the
	// default times.
	Platform string `json:"platform,omitempty"`
	Seed     uint64 `json:"seed"`
	// Limit is the maximum duration, in virtual time in a simulation; 0 means an
	// hour there, and none in namespaces.
	Limit time.Duration `json:"limit,omitempty"`
	// Options are those of the runtime; mpihost does not read them.
	Options json.RawMessage `json:"options,omitempty"`
	// Checkers are names of checkers of the ranks' calls, for simulations.
	Checkers []string `json:"checkers,omitempty"`
	// Reports asks the ranks for reports (Process.Report).
	Reports bool `json:"reports,omitempty"`
	// ReportFD is the descriptor for the reports of a simulation, which first
	// writes ReportStarted; 0 for none.
	ReportFD int `json:"report_file,omitempty"`

	// Explore is set for a process that explores its simulation.
	Explore *ExploreJob `json:"explore,omitempty"`

	// Rank is set for a process that is one rank.
	Rank *RankJob `json:"rank,omitempty"`
}

// RankJob is the additional configuration of a rank in a process.
type RankJob struct {
	NICs []NICJob `json:"nics"`
	// SharedFD is the descriptor of the shared memory of its host (NewSharedMemory); 0 for none.
	SharedFD int `json:"shared,omitempty"`
	// CPU is the CPU of the rank, counted from 1; 0 for any.
	CPU int `json:"cpu,omitempty"`
	// StartTime is time 0 of all ranks.
	StartTime time.Time `json:"began"`
}

// NICJob is a NIC of the host: a device of its kernel, or an emulated one, with an address for this
// rank only.
type NICJob struct {
	Name string     `json:"name"`
	Addr netip.Addr `json:"addr"`
	// Device says that Name is that of a device of the kernel (package ibv).
	Device bool `json:"device,omitempty"`
	// CableFD is the descriptor of its cable in shared memory; 0 for none.
	CableFD int `json:"cable,omitempty"`
}

// fabric returns the Fabric of a Job, without defaults.
func (j *Job) fabric() (Fabric, error) {
	f := Fabric{
		Ranks: j.Ranks, PerHost: j.PerHost, Rails: j.Rails, Provider: j.Provider,
		Link: sim.LinkConfig{MTU: j.MTU}, Seed: j.Seed, Limit: j.Limit,
	}
	if j.ICRCOffloaded {
		f.Setup.Options = nics.Options{"icrc": false} // neither computed nor checked
	}
	if j.LossPPM > 0 {
		f.Impair = []impair.Spec{{LossPPM: j.LossPPM}}
	}
	if j.Platform == "" {
		return f, nil
	}
	p, err := nics.LoadPlatform(j.Platform)
	if err != nil {
		return f, err
	}
	f.SetPlatform(p)
	f.Link.MTU = cmp.Or(j.MTU, f.Link.MTU)
	return f, nil
}

// nodes returns the index of the host of each rank, by rank.
func (j *Job) nodes(f *Fabric) (all []int) {
	if j.HostRanks == nil {
		return f.nodes()
	}
	for host, n := range j.HostRanks {
		all = append(all, slices.Repeat([]int{host}, n)...)
	}
	return all
}

// SetPlatform gives hosts and NICs the costs of a platform, and its provider unless one is set.
func (f *Fabric) SetPlatform(p *nics.Platform) {
	f.Link, f.NIC, f.Costs, f.MemoryBps, f.Provider = p.Link, p.NIC, &p.Host, p.MemoryBps, cmp.Or(f.Provider, p.Provider)
}

// Check returns an error if the fabric, the settings of its NICs or the topology are invalid.
func (j *Job) Check() error {
	f, err := j.fabric()
	if err != nil {
		return err
	}
	f, provider, err := f.withDefaults()
	if err != nil {
		return err
	}
	if _, err := provider.NewOpener(f.Setup); err != nil {
		return err
	}
	_, err = f.topology()
	return err
}

// ReportStarted is the rank in the first Report of a simulation: the program has called Join.
const ReportStarted = -1

// Report is the final report of a rank in a simulation.
type Report struct {
	Rank int             `json:"rank"`
	Text json.RawMessage `json:"text,omitempty"`
}

// parseJob parses the JSON of a Job; an empty text is an error.
func parseJob(text []byte) (*Job, error) {
	j := new(Job)
	if len(text) == 0 {
		return nil, errors.New("this program was not started by 'fabrictest mpirun'")
	}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("the job from 'fabrictest mpirun': %w", err)
	}
	return j, nil
}
