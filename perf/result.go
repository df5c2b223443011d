package perf

// Result is what a run has measured.
type Result struct {
	Ratios  Ratios       `json:"ratios"`
	Rates   Rates        `json:"rates"`
	Memory  Memory       `json:"memory"`
	Streams []StreamRate `json:"streams"`
	// Comparisons are all that were made, if there are more than Ratios tells.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Noise is the worst of Noises: how much the limits differed from themselves.
	Noise   float64  `json:"noise"`
	Noises  Noises   `json:"noises"`
	Targets []Target `json:"targets"`
	Samples []Series `json:"samples"`
	Seconds float64  `json:"seconds"`
}

// Ratios compare a device with bare sockets.
type Ratios struct {
	WriteToLimit          float64 `json:"write_to_limit"`
	WriteToLimitOffloaded float64 `json:"write_to_limit_offloaded"`
	// LatencyToRaw is the worse of the two below it, and they are the worst of
	// those measured, where there are several.
	LatencyToRaw         float64 `json:"latency_to_raw"`
	LatencyToRawSpinning float64 `json:"latency_to_raw_spinning"`
	LatencyToRawBlocking float64 `json:"latency_to_raw_blocking"`
	// Datagrams compare a device that sends datagrams with one that has
	// connections; nil if there was none.
	Datagrams *DatagramRatios `json:"datagrams,omitempty"`
}

// DatagramRatios compare datagrams with connections.
type DatagramRatios struct {
	LatencySpinning float64 `json:"latency_spinning"`
	LatencyBlocking float64 `json:"latency_blocking"`
	// Bandwidth is of messages that are posted singly, BandwidthBursts of messages
	// that are posted in bursts.
	Bandwidth       float64 `json:"bandwidth"`
	BandwidthBursts float64 `json:"bandwidth_bursts"`
}

// Rates are of messages of 64 bytes.
type Rates struct {
	Send64PerS float64 `json:"send64_per_s"`
	// QPsFlatness is the lowest rate at any number of queue pairs, as a fraction
	// of that at one.
	QPsFlatness float64  `json:"qps_flatness"`
	ByQPs       []QPRate `json:"by_qps"`
}

// QPRate is the rate over so many queue pairs.
type QPRate struct {
	QPs  int     `json:"qps"`
	PerS float64 `json:"per_s"`
}

// Memory is what a host's process holds.
type Memory struct {
	IdleMB float64 `json:"idle_mb"`
}

// StreamRate is the goodput of one kind of message.
type StreamRate struct {
	Op     string  `json:"op"`
	Bytes  int     `json:"bytes"`
	Gbps   float64 `json:"gbps"`
	Spread float64 `json:"spread"`
}

// Comparison is what a Duel came to.
type Comparison struct {
	Name  string  `json:"name"`
	To    string  `json:"to"`
	Unit  string  `json:"unit"`
	Got   float64 `json:"got"`   // median of the device
	Limit float64 `json:"limit"` // and of what it is compared with
	Ratio float64 `json:"ratio"`
	Noise float64 `json:"noise"`
}

// Noises are the A/A differences of the comparisons of a run.
type Noises struct {
	Write     float64 `json:"write"`
	Spinning  float64 `json:"spinning"`
	Blocking  float64 `json:"blocking"`
	Rate      float64 `json:"rate"`
	Datagrams float64 `json:"datagrams,omitempty"`
}

func (n Noises) worst() float64 { return max(n.Write, n.Spinning, n.Blocking, n.Rate, n.Datagrams) }
