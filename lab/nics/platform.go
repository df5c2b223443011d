package nics

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fabrictest/fabrictest/emu/sim"
	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/verbs"
)

// Platform is a host with its NIC and cable, as the virtual time that they take. It is one YAML
// file, in which every parameter has its source. One that the file leaves out takes no time or has
// no limit; the times of verb calls and the rate of the cable must be there.
type Platform struct {
	Name     string
	Title    string
	Notes    string // how the simulation differs from the platform
	Provider string // whose protocol the NIC has
	Host     verbs.Costs
	NIC      sim.NICCosts
	Link     sim.LinkConfig
	// MemoryBps is the rate, in bits a second, of the memory bus that the copies of all programs of a host
	// share; 0: copies do not slow down each other.
	MemoryBps uint64
	// Parameters and Base are the rows of the file.
	Parameters []Parameter
	Base       []BaseFigure
}

// Parameter is a number of a Platform.
type Parameter struct {
	// Name is the name of the parameter. It ends with the unit: host.post_ns.
	Name string `yaml:"name" json:"name"`
	// Value is the number, in the unit of the name.
	Value float64 `yaml:"value" json:"value"`
	// Source is where the value is published, or "fitted: " and the figure of the base that the
	// value was fitted to, or "assumed: " and why.
	Source string `yaml:"source" json:"source"`
}

// Kind returns how the value of a parameter is known, by the beginning of its source: "fitted" (to
// a base figure), "assumed", or else "published".
func (p *Parameter) Kind() string {
	for _, kind := range []string{"fitted", "assumed"} {
		if strings.HasPrefix(p.Source, kind) {
			return kind
		}
	}
	return "published"
}

// BaseFigure is a published figure of the platform without the technique that is studied on it.
type BaseFigure struct {
	// Figure is the name of the figure.
	Figure string `yaml:"figure" json:"figure"`
	// Value is the published value; 0 for a fact without a number.
	Value float64 `yaml:"value" json:"value,omitempty"`
	// Unit is the unit of the value.
	Unit string `yaml:"unit" json:"unit,omitempty"`
	// Source is the place where the figure is published.
	Source string `yaml:"source" json:"source"`
	// Fitted is true if parameters were fitted to the figure. In simulation it must be within 5 %.
	Fitted bool `yaml:"fitted" json:"fitted,omitempty"`
	// Why is the reason for a difference of more than 15 %, or for a figure that is not measured.
	Why string `yaml:"why" json:"why,omitempty"`
	// Measure is how the figure is measured in simulation.
	Measure *BaseMeasure `yaml:"measure" json:"measure,omitempty"`
}

// BaseMeasure is the measurement of a figure between two hosts: a program over verbs, or a workload
// of MPI.
type BaseMeasure struct {
	// Program is a program over verbs: write-latency, send-latency, send, write, write-both-ways,
	// read, or rate.
	Program string `yaml:"program" json:"program,omitempty"`
	// Workload is a workload of MPI: pingpong or bothway.
	Workload string `yaml:"workload" json:"workload,omitempty"`
	// Bytes is the size of the messages.
	Bytes int `yaml:"bytes" json:"bytes,omitempty"`
	// QPs is the number of queue pairs of a stream or rate.
	QPs int `yaml:"qps" json:"qps,omitempty"`
	// Bandwidth takes the bandwidth of a ping-pong instead of its latency.
	Bandwidth bool `yaml:"bandwidth" json:"bandwidth,omitempty"`
	// EagerBytes is the largest eager message of MPI.
	EagerBytes int `yaml:"eager_bytes" json:"eager_bytes,omitempty"`
	// RPUT sends large messages of MPI by RDMA write, and not by RDMA read.
	RPUT bool `yaml:"rput" json:"rput,omitempty"`
	// Design is the design of MPI's connections: srq, or ring-srq.
	Design string `yaml:"design" json:"design,omitempty"`
	// MinusDesign is the design whose figure is subtracted.
	MinusDesign string `yaml:"minus_design" json:"minus_design,omitempty"`
	// Iterations is the number of round trips or windows of a workload; 0 means 4.
	Iterations int `yaml:"iterations" json:"iterations,omitempty"`
}

// platformFile is the file of a platform: a host with its NIC, as costs in virtual time.
type platformFile struct {
	// Version is the version of the format: 1.
	Version int `yaml:"version"`
	// Name is the name of the platform, which is that of the file.
	Name string `yaml:"name"`
	// Title is one line about the platform.
	Title string `yaml:"title"`
	// Notes is how the simulation differs from the platform.
	Notes string `yaml:"notes"`
	// Provider is whose protocol the NIC has: softroce, softiwarp or dgiwarp.
	Provider string `yaml:"provider"`
	// Parameters are the costs. Those that are left out take no time or have no limit.
	Parameters []Parameter `yaml:"parameters"`
	// Base are the published figures of the platform, with which parameters are calibrated.
	Base []BaseFigure `yaml:"base"`
}

//go:embed platforms/*.yaml
var platformFiles embed.FS

// maxPlatform is the largest file of a platform.
const maxPlatform = 64 << 10

// PlatformNames lists the platforms that ship with fabrictest.
func PlatformNames() (names []string) {
	all, _ := fs.Glob(platformFiles, "platforms/*.yaml") // the pattern is valid
	for _, file := range all {
		names = append(names, strings.TrimSuffix(path.Base(file), ".yaml"))
	}
	return names
}

// LoadPlatform returns the platform (the costs of a host and its NIC in virtual time) with a name,
// or of a file, if name has a slash or ends with .yaml.
func LoadPlatform(name string) (*Platform, error) {
	if !strings.Contains(name, "/") && !strings.HasSuffix(name, ".yaml") {
		text, err := platformFiles.ReadFile("platforms/" + name + ".yaml")
		if err != nil {
			return nil, cli.Errorf("no platform is called %q%s: there are %s", name, cli.Guess(name, PlatformNames()), strings.Join(PlatformNames(), ", "))
		}
		return ParsePlatform(text)
	}
	text, err := cli.ReadFile(name, maxPlatform)
	if err != nil {
		return nil, err
	}
	p, err := ParsePlatform(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// ParsePlatform reads the file of a platform. Unknown keys and parameters are errors.
func ParsePlatform(text []byte) (*Platform, error) {
	var f platformFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		return nil, err
	}
	p := &Platform{Name: f.Name, Title: f.Title, Notes: strings.TrimSpace(f.Notes), Provider: f.Provider, Base: f.Base}
	var errs []error
	if f.Version != 1 {
		errs = append(errs, fmt.Errorf("version %d: give 1", f.Version))
	}
	if f.Name == "" || f.Title == "" {
		errs = append(errs, errors.New("name or title is missing"))
	}
	if _, err := Find(f.Provider); err != nil {
		errs = append(errs, err)
	}
	for _, row := range f.Parameters {
		errs = append(errs, p.Set(row))
	}
	for i := range f.Base {
		errs = append(errs, f.Base[i].check())
	}
	if p.Host.Control == 0 || p.Host.Post == 0 || p.Host.Poll == 0 || p.Link.RateBps == 0 {
		errs = append(errs, errors.New("host.control_ns, host.post_ns, host.poll_ns and link.rate_gbps must be given, and not be 0"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

// check returns an error if the figure lacks a key, or has keys that contradict each other. Only a
// figure with a measure is compared with the simulation.
func (b *BaseFigure) check() error {
	switch m := b.Measure; {
	case b.Figure == "" || b.Source == "":
		return fmt.Errorf("base figure %q: figure or source is missing", b.Figure)
	case m == nil && b.Fitted:
		return fmt.Errorf("base figure %q: it is fitted, and has no measure", b.Figure)
	case m != nil && (m.Program == "") == (m.Workload == ""):
		return fmt.Errorf("base figure %q: a measure has either a program or a workload", b.Figure)
	case m != nil && (b.Value <= 0 || b.Unit == ""):
		return fmt.Errorf("base figure %q: it is measured, and has no value or unit", b.Figure)
	}
	return nil
}

// Set sets a parameter, which must not be set yet, have a source, and a value in a plausible range.
func (p *Platform) Set(row Parameter) error {
	set, ok := platformParameters[row.Name]
	switch {
	case !ok:
		return fmt.Errorf("no parameter is called %q%s", row.Name, cli.Guess(row.Name, ParameterNames()))
	case slices.ContainsFunc(p.Parameters, func(other Parameter) bool { return other.Name == row.Name }):
		return fmt.Errorf("%s is given twice", row.Name)
	case row.Source == "":
		return fmt.Errorf(`%s has no source: name where it is published, or "assumed" and why`, row.Name)
	case !(row.Value >= 0 && row.Value <= 1e12): // also for NaN
		return fmt.Errorf("%s: %v is not between 0 and 1e12", row.Name, row.Value)
	}
	set(p, row.Value)
	p.Parameters = append(p.Parameters, row)
	return nil
}

// Value returns the value of a parameter of the file; false if the file does not have it.
func (p *Platform) Value(name string) (float64, bool) {
	i := slices.IndexFunc(p.Parameters, func(row Parameter) bool { return row.Name == name })
	if i < 0 {
		return 0, false
	}
	return p.Parameters[i].Value, true
}

// With returns a copy of the platform with other values of some parameters, whose source is given.
func (p *Platform) With(values map[string]float64, source string) (*Platform, error) {
	changed := &Platform{Name: p.Name, Title: p.Title, Notes: p.Notes, Provider: p.Provider, Base: p.Base}
	for _, row := range p.Parameters {
		if v, ok := values[row.Name]; ok {
			row.Value, row.Source = v, source
		}
		if err := changed.Set(row); err != nil {
			return nil, err
		}
	}
	return changed, nil
}

// Write writes the platform as a YAML file, without Base, the published figures of the platform.
func (p *Platform) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nname: %s\ntitle: %q\nnotes: %q\nprovider: %s\nparameters:\n", p.Name, p.Title, p.Notes, p.Provider)
	for _, row := range p.Parameters {
		fmt.Fprintf(&b, "  - {name: %s, value: %.6g, source: %q}\n", row.Name, row.Value, row.Source)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ParameterNames lists the parameters of platforms.
func ParameterNames() (names []string) {
	for name := range platformParameters {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// platformParameters sets each parameter to a value.
var platformParameters = map[string]func(*Platform, float64){
	// CPU time of verb calls, and of operations on memory. Those of a program come last.
	"host.control_ns":             duration(func(p *Platform) *time.Duration { return &p.Host.Control }),
	"host.post_ns":                duration(func(p *Platform) *time.Duration { return &p.Host.Post }),
	"host.poll_ns":                duration(func(p *Platform) *time.Duration { return &p.Host.Poll }),
	"host.inline_ns":              duration(func(p *Platform) *time.Duration { return &p.Host.Inline.Base }),
	"host.inline_ns_per_kib":      perKiB(func(p *Platform) *int { return &p.Host.Inline.PicosecondsPerByte }),
	"host.inline_bytes":           number(func(p *Platform) *int { return &p.Host.InlineBytes }),
	"host.register_ns":            duration(func(p *Platform) *time.Duration { return &p.Host.Register.Base }),
	"host.register_ns_per_page":   perPage(func(p *Platform) *verbs.LinearCost { return &p.Host.Register }),
	"host.deregister_ns":          duration(func(p *Platform) *time.Duration { return &p.Host.Deregister.Base }),
	"host.deregister_ns_per_page": perPage(func(p *Platform) *verbs.LinearCost { return &p.Host.Deregister }),
	"host.wake_ns":                duration(func(p *Platform) *time.Duration { return &p.Host.Wake }),
	"host.copy_ns":                duration(func(p *Platform) *time.Duration { return &p.Host.Copy.Base }),
	"host.copy_ns_per_kib":        perKiB(func(p *Platform) *int { return &p.Host.Copy.PicosecondsPerByte }),
	"host.copy_cached_bytes":      number(func(p *Platform) *int { return &p.Host.Copy.CachedBytes }),
	"host.copy_cached_ns_per_kib": perKiB(func(p *Platform) *int { return &p.Host.Copy.CachedPicosecondsPerByte }),
	"host.memory_gbps":            gbps(func(p *Platform) *uint64 { return &p.MemoryBps }),
	"host.lookup_ns":              duration(func(p *Platform) *time.Duration { return &p.Host.LookUp }),
	"host.poll_memory_ns":         duration(func(p *Platform) *time.Duration { return &p.Host.PollMemory }),
	"host.message_ns":             duration(func(p *Platform) *time.Duration { return &p.Host.Message }),
	// CPU time of the kernel or protocol stack.
	"stack.cores":                  number(func(p *Platform) *int { return &p.NIC.Stack.Cores }),
	"stack.udp_send_ns":            duration(func(p *Platform) *time.Duration { return &p.NIC.Stack.UDP.Send.Packet }),
	"stack.udp_send_ns_per_kib":    perKiB(func(p *Platform) *int { return &p.NIC.Stack.UDP.Send.PicosecondsPerByte }),
	"stack.udp_receive_ns":         duration(func(p *Platform) *time.Duration { return &p.NIC.Stack.UDP.Receive.Packet }),
	"stack.udp_receive_ns_per_kib": perKiB(func(p *Platform) *int { return &p.NIC.Stack.UDP.Receive.PicosecondsPerByte }),
	"stack.tcp_send_ns":            duration(func(p *Platform) *time.Duration { return &p.NIC.Stack.TCP.Send.Packet }),
	"stack.tcp_send_ns_per_kib":    perKiB(func(p *Platform) *int { return &p.NIC.Stack.TCP.Send.PicosecondsPerByte }),
	"stack.tcp_receive_ns":         duration(func(p *Platform) *time.Duration { return &p.NIC.Stack.TCP.Receive.Packet }),
	"stack.tcp_receive_ns_per_kib": perKiB(func(p *Platform) *int { return &p.NIC.Stack.TCP.Receive.PicosecondsPerByte }),
	// The NIC, between its protocol and the cable.
	"nic.send_packet_ns":      duration(func(p *Platform) *time.Duration { return &p.NIC.Send.Packet }),
	"nic.send_ns_per_kib":     perKiB(func(p *Platform) *int { return &p.NIC.Send.PicosecondsPerByte }),
	"nic.send_latency_ns":     duration(func(p *Platform) *time.Duration { return &p.NIC.Send.Latency }),
	"nic.receive_packet_ns":   duration(func(p *Platform) *time.Duration { return &p.NIC.Receive.Packet }),
	"nic.receive_ns_per_kib":  perKiB(func(p *Platform) *int { return &p.NIC.Receive.PicosecondsPerByte }),
	"nic.receive_latency_ns":  duration(func(p *Platform) *time.Duration { return &p.NIC.Receive.Latency }),
	"nic.units":               number(func(p *Platform) *int { return &p.NIC.Units }),
	"nic.pcie_gbps":           gbps(func(p *Platform) *uint64 { return &p.NIC.PCIeBps }),
	"nic.half_duplex_bus":     isSet(func(p *Platform) *bool { return &p.NIC.HalfDuplexBus }),
	"nic.receive_request_ns":  duration(func(p *Platform) *time.Duration { return &p.NIC.ReceiveRequest }),
	"nic.inline_bytes":        number(func(p *Platform) *int { return &p.NIC.InlineBytes }),
	"nic.dma_read_ns":         duration(func(p *Platform) *time.Duration { return &p.NIC.DMARead }),
	"nic.dma_write_ns":        duration(func(p *Platform) *time.Duration { return &p.NIC.DMAWrite }),
	"nic.context_entries":     number(func(p *Platform) *int { return &p.NIC.ContextEntries }),
	"nic.context_miss_ns":     duration(func(p *Platform) *time.Duration { return &p.NIC.ContextMiss }),
	"nic.translation_entries": number(func(p *Platform) *int { return &p.NIC.TranslationEntries }),
	"nic.translation_miss_ns": duration(func(p *Platform) *time.Duration { return &p.NIC.TranslationMiss }),
	// The cable. A packet through a switch crosses two.
	"link.rate_gbps":      gbps(func(p *Platform) *uint64 { return &p.Link.RateBps }),
	"link.latency_ns":     duration(func(p *Platform) *time.Duration { return &p.Link.Latency }),
	"link.mtu_bytes":      number(func(p *Platform) *int { return &p.Link.MTU }),
	"link.overhead_bytes": number(func(p *Platform) *int { return &p.Link.OverheadBytes }),
}

const (
	kib  = 1 << 10
	page = 4 << 10
)

// The following return a function that sets a field to a value in the unit of a parameter.

func duration(field func(*Platform) *time.Duration) func(*Platform, float64) {
	return func(p *Platform, v float64) { *field(p) = time.Duration(math.Round(v)) }
}

func number(field func(*Platform) *int) func(*Platform, float64) {
	return func(p *Platform, v float64) { *field(p) = int(math.Round(v)) }
}

func isSet(field func(*Platform) *bool) func(*Platform, float64) {
	return func(p *Platform, v float64) { *field(p) = v != 0 }
}

func gbps(field func(*Platform) *uint64) func(*Platform, float64) {
	return func(p *Platform, v float64) { *field(p) = uint64(math.Round(v * 1e9)) }
}

func perKiB(field func(*Platform) *int) func(*Platform, float64) {
	return func(p *Platform, v float64) { *field(p) = int(math.Round(v * 1000 / kib)) }
}

// perPage returns a setter of a cost in nanoseconds per page of memory.
func perPage(field func(*Platform) *verbs.LinearCost) func(*Platform, float64) {
	return func(p *Platform, v float64) {
		c := field(p)
		c.PicosecondsPerByte, c.Granularity = int(math.Round(v*1000/page)), page
	}
}
