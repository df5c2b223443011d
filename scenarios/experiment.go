package scenarios

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"
)

// Experiment runs workloads of the multi-rank runtime on a simulated platform, in several variants,
// and compares figures of them with published results.
type Experiment struct {
	// Platform is the platform of the hosts: one that "fabrictest mpirun --help" lists, or a YAML
	// file, as a path from the working folder.
	Platform string `yaml:"platform" pattern:"^[^\\r\\n]{1,200}$" hint:"name a platform or a YAML file"`
	// Settings are those of every variant that does not set them itself.
	Settings `yaml:",inline"`
	// CommunicationOf is the variant whose time of a step without computation is the time of
	// communication.
	CommunicationOf string `yaml:"communication_of,omitempty"`
	// Vary is the x axis: every variant runs once with each value.
	Vary Axis `yaml:"vary"`
	// Variants are the settings that differ, by the name of the variant.
	Variants map[string]Variant `yaml:"variants"`
	// Figures are the published results, with how they are measured here.
	Figures []Figure `yaml:"figures" most:"64"`
}

// Variant is a curve of an experiment.
type Variant struct {
	// Platform is the platform of the variant, if it is not that of the experiment.
	Platform string `yaml:"platform,omitempty" pattern:"^[^\\r\\n]{1,200}$" hint:"name a platform or a YAML file"`
	// Settings are those that differ from the settings of the experiment.
	Settings `yaml:",inline"`
}

// Settings are a workload with its parameters, and options of the runtime.
type Settings struct {
	// Workload is a program of the runtime, as "fabrictest mpirun" has them.
	Workload     string `yaml:"workload,omitempty"`
	VerbsProgram `yaml:",inline"`
	// Class is its problem size; T, the smallest, if left out. Only some workloads have B and C.
	Class string `yaml:"class,omitempty" enum:"T S W A B C"`
	Point `yaml:",inline"`
	// Variation is by how many per cent each computation of a rank is longer or shorter, at most, at
	// random; 0 if left out: all ranks compute for the same time.
	Variation int `yaml:"variation,omitempty" range:"1..100"`
	// Operation is the collective operation of the workload collective; all if left out.
	Operation string `yaml:"operation,omitempty" pattern:"^[a-z-]{1,40}$" hint:"name an operation such as alltoall"`
	// Warmup is the number of iterations of the workload collective before those that are measured; 0 if
	// left out.
	Warmup int `yaml:"warmup,omitempty" range:"1..1000000"`
	// Groups is the number of groups of ranks of the workload collective, which perform the operation at the
	// same time: rank r is in group r modulo groups. All ranks perform one operation if left out.
	Groups int `yaml:"groups,omitempty" range:"1..4096"`
	// MIF is the maximum imbalance factor of the workload collective: a rank computes before each operation
	// for a random time of up to this many times that of a message; 0 if left out.
	MIF int `yaml:"mif,omitempty" range:"1..1000000"`
	// Late is the number of ranks in per cent, at random, that compute for the longest of these times,
	// while the others do not compute.
	Late int `yaml:"late,omitempty" range:"1..100"`
	// PerHost is how many ranks share a host; 1 if left out.
	PerHost int `yaml:"per_host,omitempty" range:"1..64"`
	// Hosts is instead of per_host the number of hosts, which the ranks fill evenly and in blocks.
	Hosts int `yaml:"hosts,omitempty" range:"1..4096"`
	// Rails is the number of NICs of a host, each on its own network; 1 if left out.
	Rails int `yaml:"rails,omitempty" range:"1..8"`

	// Protocol is the rendezvous of large messages: the receiver reads, the sender writes, or the
	// receiver may announce its buffer first; rget if left out.
	Protocol string `yaml:"protocol,omitempty" enum:"rget rput speculative"`
	// Adaptive stops the announcements of speculative receivers that are rarely used; false if
	// left out.
	Adaptive *bool `yaml:"adaptive,omitempty"`
	// EarlyProgress is the progress call that begins speculative sends and receives; true if left
	// out.
	EarlyProgress *bool `yaml:"early_progress,omitempty"`
	// Progress says when a rank makes progress: in calls of the runtime only (polling, if left
	// out), or in a task next to the program as well.
	Progress string `yaml:"progress,omitempty" enum:"polling background"`
	// Design selects the transports between hosts; ring-srq if left out.
	Design string `yaml:"design,omitempty" enum:"sendrecv srq ring-sendrecv ring-srq ud hybrid"`
	// Eager is the size of the largest eager message; 4KiB if left out.
	Eager Bytes `yaml:"eager,omitempty" range:"1..1048576"`
	// Slot is the size of a slot of a ring, to which a peer writes small packets; 2KiB if left out.
	Slot Bytes `yaml:"slot,omitempty" range:"256..1048576"`
	// Stripe is the smallest transfer by RDMA that is divided among rails; 64KiB if left out.
	Stripe Bytes `yaml:"stripe,omitempty" range:"1..1073741824"`
	// PollBackoff divides the time that a rank has waited so far to give the interval at which it
	// polls rings and shared memory; 8 if left out.
	PollBackoff int `yaml:"poll_backoff,omitempty" range:"1..4000"`
	BufferReuse `yaml:",inline"`
	Buffers     `yaml:",inline"`
	// RegistrationCache keeps registrations of memory for later messages; true if left out.
	RegistrationCache *bool `yaml:"registration_cache,omitempty"`
	// SharedMemory connects the ranks of a host; true if left out. Without it they use NICs.
	SharedMemory *bool `yaml:"shared_memory,omitempty"`
	// RDMA moves the data of long messages and of one-sided operations; true if left out. Without it
	// they go in packets, which ranks copy.
	RDMA *bool `yaml:"rdma,omitempty"`
	// Coalescing puts several small messages into a packet; true if left out.
	Coalescing *bool `yaml:"coalescing,omitempty"`
	// Collectives are algorithms of collective operations, such as bcast=chain,allgather=ring, and files
	// of "fabrictest tune", such as @tuned.yaml, as paths from the working folder; the default ones if
	// left out.
	Collectives string `yaml:"collectives,omitempty" pattern:"^([a-z-]{1,40}=[a-z0-9-]{1,40}|@[^\\s,]+)(,([a-z-]{1,40}=[a-z0-9-]{1,40}|@[^\\s,]+)){0,20}$" hint:"give a list such as bcast=chain,allgather=ring or @tuned.yaml"`
}

// VerbsProgram is a program over verbs between two hosts, and the NICs of both kinds of programs.
type VerbsProgram struct {
	// Program is instead of a workload a program over verbs between two hosts: a ping-pong by RDMA
	// WRITE or by SEND, or WRITEs in both directions. Its figure is latency or bandwidth.
	Program string `yaml:"program,omitempty" enum:"write-pingpong send-pingpong both-ways"`
	// Connections is the number of queue pairs of a program; 1 if left out. The latency of a
	// ping-pong on all of them at once is divided by it.
	Connections int `yaml:"connections,omitempty" range:"1..1024"`
	// Provider is whose protocol the NICs have; that of the platform if left out. Datagrams of
	// dgiwarp are unreliable.
	Provider string `yaml:"provider,omitempty" enum:"softroce softiwarp dgiwarp"`
}

// Buffers are the numbers and sizes of the buffers of a rank.
type Buffers struct {
	// Packet is the size of packets and of receives; if left out, 8KiB or what eager needs.
	Packet Bytes `yaml:"packet,omitempty" range:"256..1048576"`
	// Receives is the number of receives of a connection without a shared receive queue; 32 if left
	// out.
	Receives int `yaml:"receives,omitempty" range:"4..4096"`
	// SharedReceives is the number of receives of the shared receive queue; 256 if left out.
	SharedReceives int `yaml:"shared_receives,omitempty" range:"1..65536"`
	// LowWatermark is the number of shared receives left at which more are posted at once; a quarter
	// of them if left out.
	LowWatermark int `yaml:"low_watermark,omitempty" range:"1..65535"`
	// RingSlots is the number of slots of a ring; 32 if left out.
	RingSlots int `yaml:"ring_slots,omitempty" range:"2..4096"`
	// RingAfter is the number of packets from a peer after which it gets a ring; 16 if left out.
	RingAfter int `yaml:"ring_after,omitempty" range:"1..1000000"`
	// RingPeers is the largest number of rings of a rank; 16 if left out.
	RingPeers int `yaml:"ring_peers,omitempty" range:"1..4096"`
}

// BufferReuse are options of the registration of small buffers.
type BufferReuse struct {
	// Reuse registers small buffers that are used often, instead of copying them; true if left out.
	Reuse *bool `yaml:"reuse,omitempty"`
	// ReuseBuckets is the number of hash buckets of the table of small buffers, a power of two; 65536
	// if left out.
	ReuseBuckets int `yaml:"reuse_buckets,omitempty" range:"1..16777216"`
	// ReuseAdaptive stops the growth of that table when few of its buffers are used often; true if
	// left out.
	ReuseAdaptive *bool `yaml:"reuse_adaptive,omitempty"`
}

// Point are the parameters of a workload of which one can be varied.
type Point struct {
	// Ranks is the number of ranks.
	Ranks int `yaml:"ranks,omitempty" range:"1..4096"`
	// Bytes is the size of messages.
	Bytes Bytes `yaml:"bytes,omitempty" range:"1..67108864"`
	// Compute is the time that a rank computes in each step.
	Compute time.Duration `yaml:"compute,omitempty"`
	// Iterations is the number of steps.
	Iterations int `yaml:"iterations,omitempty" range:"1..1000000"`
	// Communication is the time of communication in a step in per cent of the time that a rank
	// computes in it: compute follows from it and communication_of.
	Communication int `yaml:"communication,omitempty" range:"1..10000"`
}

// Axis is the x axis of an experiment: one of the keys, with its values in ascending order.
type Axis struct {
	// Ranks are numbers of ranks.
	Ranks []int `yaml:"ranks,omitempty" most:"64" range:"1..4096"`
	// Bytes are sizes of messages.
	Bytes []Bytes `yaml:"bytes,omitempty" most:"64" range:"1..67108864"`
	// Compute are times that a rank computes in each step.
	Compute []time.Duration `yaml:"compute,omitempty" most:"64"`
	// Iterations are numbers of steps.
	Iterations []int `yaml:"iterations,omitempty" most:"64" range:"1..1000000"`
	// Communication are times of communication in per cent of the time that a rank computes.
	Communication []int `yaml:"communication,omitempty" most:"64" range:"1..10000"`
}

// Figure is a published result.
type Figure struct {
	// Row is its number in a list of published results.
	Row string `yaml:"row" pattern:"^[A-Za-z0-9.-]{1,16}$" hint:"use letters, digits, points and hyphens"`
	// Text is what it says, on one line.
	Text string `yaml:"text" pattern:"^[^\\r\\n]{1,160}$" hint:"write one line of at most 160 characters"`
	// Measure is how it is measured here.
	Measure Measure `yaml:"measure"`
	// Published is the published value.
	Published Published `yaml:"published"`
	// Differs is the reason of a known difference. The scenario passes with the difference, and
	// fails without it.
	Differs string `yaml:"differs,omitempty"`
}

// Kinds of Measure.
const (
	Value      = "value"
	Reduction  = "reduction"
	Increase   = "increase"
	Ratio      = "ratio"
	Difference = "difference"
	Crossover  = "crossover"
	Until      = "until"
	BestAt     = "best_at"
)

// Measure is how a figure follows from the results of variants.
type Measure struct {
	// Kind is value (of the variant of), reduction and increase (by how many per cent the figure of
	// to is below or above that of from), ratio (the figure of from divided by that of to),
	// difference (the figure of from minus that of to), crossover (the smallest x from which the
	// figure of to is below that of from), until (the largest x up to which it is), or best_at (the x
	// of the largest reduction).
	Kind string `yaml:"kind" enum:"value reduction increase ratio difference crossover until best_at"`
	// Figure is a figure of the workload without the size of messages, such as latency; time, that of
	// the slowest rank; waited, sending or communicating, the mean time of ranks in calls that wait, in
	// those that send, or in both and those that receive, without collectives; in_collectives, that in
	// collective calls but barriers; or a statistic of the runtime, such as "RTRs used".
	Figure string `yaml:"figure" pattern:"^[^\\r\\n]{1,80}$" hint:"name a figure of the workload, such as latency"`
	// Of is a variant.
	Of string `yaml:"of,omitempty"`
	// From is the variant that is compared with to.
	From string `yaml:"from,omitempty"`
	// To is the variant whose gain is measured.
	To string `yaml:"to,omitempty"`
	// Beyond are two other variants: their comparison is subtracted from that of from and to.
	Beyond Comparison `yaml:"beyond,omitempty"`
	// Point is where on the x axis; a value of vary, by its key.
	Point `yaml:",inline"`
	// Over is instead of one value of the x axis the largest or the smallest result over all.
	Over string `yaml:"over,omitempty" enum:"largest smallest"`
	// Within has the smallest and the largest value of the x axis that count for over, crossover, until
	// and best_at, by its key; all values count if it is left out.
	Within Axis `yaml:"within,omitempty"`
}

// Comparison are two variants that are compared.
type Comparison struct {
	// From is the variant that is compared with to.
	From string `yaml:"from"`
	// To is the variant whose gain is measured.
	To string `yaml:"to"`
}

// Published is a published value, with the relation of results to it.
type Published struct {
	// Op is the relation: "=" (if left out), "~" and up_to (within 15 per cent, or 2 per cent points
	// of a reduction or increase), "<", "<=", ">", ">=", and high, low or flat where words are
	// published, with a number that is our reading: at least, at most, or at most in either direction.
	Op string `yaml:"op,omitempty" enum:"= ~ up_to < <= > >= high low flat"`
	// Value is the number.
	Value *float64 `yaml:"value,omitempty"`
	// Range is a smallest and a largest number instead.
	Range []float64 `yaml:"range,omitempty" most:"2"`
	// Unit is that of the figure; "%" for reductions and increases, x for ratios, and for the other
	// kinds that of the x axis: B, ranks, us, iterations, or % of communication.
	Unit string `yaml:"unit" pattern:"^[^\\s]{1,12}$" hint:"write a unit such as us, MB/s or %"`
	// Where is the publication with the section.
	Where string `yaml:"where" pattern:"^[^\\r\\n]{1,120}$" hint:"name a paper and a section, on one line"`
}

// Name returns the key that the experiment varies, such as bytes; empty if it varies none.
func (a *Axis) Name() string {
	for _, f := range a.fields() {
		if f.values.Len() > 0 {
			return f.name
		}
	}
	return ""
}

// Unit is the unit of the axis: that of Point.X.
func (a *Axis) Unit() string {
	name := a.Name()
	if unit, ok := map[string]string{"bytes": "B", "compute": "us", "communication": "%"}[name]; ok {
		return unit
	}
	return name
}

// axisField is a list of values of an axis.
type axisField struct {
	name   string
	values reflect.Value
}

// fields returns the fields of the axis with their keys in the file. One of them has the values.
func (a *Axis) fields() (all []axisField) {
	v := reflect.ValueOf(a).Elem()
	for _, f := range fieldsOf(v.Type()) {
		all = append(all, axisField{f.name, v.FieldByIndex(f.index)})
	}
	return all
}

// Points returns the values of the axis.
func (a *Axis) Points() (all []Point) {
	for k, f := range a.fields() {
		for i := range f.values.Len() {
			var p Point
			reflect.ValueOf(&p).Elem().Field(k).Set(f.values.Index(i)) // Point has the same fields
			all = append(all, p)
		}
	}
	return all
}

// Within returns the indices of the values of the axis that are in the range between the two values
// of ends, both included. If ends has no values, it returns the indices of all values.
func (a *Axis) Within(ends *Axis) (all []int) {
	bounds := ends.Points()
	for i, p := range a.Points() {
		if len(bounds) == 0 || p.X() >= bounds[0].X() && p.X() <= bounds[len(bounds)-1].X() {
			all = append(all, i)
		}
	}
	return all
}

// X is the position of a value of an axis, in Axis.Unit.
func (p Point) X() float64 {
	return float64(p.Ranks) + float64(p.Bytes) + p.Compute.Seconds()*1e6 + float64(p.Iterations) + float64(p.Communication)
}

// VariantNames returns the names of the variants, sorted.
func (e *Experiment) VariantNames() []string { return slices.Sorted(maps.Keys(e.Variants)) }

// Setting returns the settings of a variant at a value of the axis.
func (e *Experiment) Setting(variant string, x Point) Settings {
	s := e.Settings
	override(&s, e.Variants[variant].Settings)
	override(&s.Point, x)
	return s
}

// override sets the fields of to that are not zero in from.
func override[T any](to *T, from T) {
	out, in := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for _, f := range fieldsOf(out.Type()) {
		if v := in.FieldByIndex(f.index); !v.IsZero() {
			out.FieldByIndex(f.index).Set(v)
		}
	}
}

// Describe returns the published value in words, such as "up to 32 %".
func (p *Published) Describe() string {
	unit := " " + p.Unit
	if p.Value == nil {
		return fmt.Sprintf("%v to %v%s", p.Range[0], p.Range[1], unit)
	}
	number := fmt.Sprint(*p.Value) + unit
	switch p.Op {
	case "~":
		return "about " + number
	case "up_to":
		return "up to " + number
	case "high":
		return "high: read as " + number + " or more"
	case "low":
		return "low: read as " + number + " or less"
	case "flat":
		return "flat: read as " + number + " or less, up or down"
	case "", "=":
		return number
	}
	return p.Op + " " + number
}
