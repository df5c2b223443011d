package perf

// Result is the result of a run.
type Result struct {
	Ratios  Ratios       `json:"ratios"`
	Rates   Rates        `json:"rates"`
	Memory  Memory       `json:"memory"`
	Streams []StreamRate `json:"streams"`
	// Comparisons are all comparisons, if there are more than in Ratios.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Noise is the maximum of Noises.
	Noise   float64  `json:"noise"`
	Noises  Noises   `json:"noises"`
	Targets []Target `json:"targets"`
	Samples []Series `json:"samples"`
	Seconds float64  `json:"seconds"`
}

// Ratios compare a device with plain sockets.
type Ratios struct {
	WriteToLimit          float64 `json:"write_to_limit"`
	WriteToLimitOffloaded float64 `json:"write_to_limit_offloaded"`
	// LatencyToRaw is the maximum of the two below, which are the maximum over all
	// sizes.
	LatencyToRaw         float64 `json:"latency_to_raw"`
	LatencyToRawSpinning float64 `json:"latency_to_raw_spinning"`
	LatencyToRawBlocking float64 `json:"latency_to_raw_blocking"`
	// Datagrams compare datagram-iWARP with soft-iWARP; nil if not measured.
	Datagrams *DatagramRatios `json:"datagrams,omitempty"`
}

// DatagramRatios compare datagrams with connections.
type DatagramRatios struct {
	LatencySpinning float64 `json:"latency_spinning"`
	LatencyBlocking float64 `json:"latency_blocking"`
	// Bandwidth is for messages that are posted singly, BandwidthBursts for bursts.
	Bandwidth       float64 `json:"bandwidth"`
	BandwidthBursts float64 `json:"bandwidth_bursts"`
}

// Rates are for messages of 64 bytes.
type Rates struct {
	Send64PerS float64 `json:"send64_per_s"`
	// QPsFlatness is the lowest rate over all numbers of queue pairs, relative to
	// one.
	QPsFlatness float64  `json:"qps_flatness"`
	ByQPs       []QPRate `json:"by_qps"`
}

// QPRate is the rate over a number of queue pairs.
type QPRate struct {
	QPs  int     `json:"qps"`
	PerS float64 `json:"per_s"`
}

// Memory is the memory of a host's process.
type Memory struct {
	IdleMB float64 `json:"idle_mb"`
}

// StreamRate is the goodput of one operation and message size.
type StreamRate struct {
	Op     string  `json:"op"`
	Bytes  int     `json:"bytes"`
	Gbps   float64 `json:"gbps"`
	Spread float64 `json:"spread"`
}

// Comparison is the result of a PairedSeries.
type Comparison struct {
	Name  string  `json:"name"`
	To    string  `json:"to"`
	Unit  string  `json:"unit"`
	Got   float64 `json:"got"`   // median of the device
	Limit float64 `json:"limit"` // median of the baseline
	Ratio float64 `json:"ratio"`
	Noise float64 `json:"noise"`
}

// Noises are the noises of the comparisons of a run.
type Noises struct {
	Write     float64 `json:"write"`
	Spinning  float64 `json:"spinning"`
	Blocking  float64 `json:"blocking"`
	Rate      float64 `json:"rate"`
	Datagrams float64 `json:"datagrams,omitempty"`
}

func (n Noises) worst() float64 { return max(n.Write, n.Spinning, n.Blocking, n.Rate, n.Datagrams) }
