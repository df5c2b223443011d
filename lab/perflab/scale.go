package perflab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/cli"
	"github.com/fabrictest/fabrictest/perf/record"
)

// ScaleArgs are the arguments of a process that simulates a point. They must not be changed.
var ScaleArgs = []string{"perf", "scale-process"}

// ScalePlan selects what is measured, and limits it.
type ScalePlan struct {
	// Only are the names of the curves; empty for all.
	Only []string
	// Time limits the CPU time of all points, and Memory the resident memory of each.
	Time   time.Duration
	Memory uint64
	// Repeat is the number of samples of each point; 0 means 1.
	Repeat int
	// Progress, if not nil, is called before each point with the part that is done.
	Progress func(doing string, done float64)

	measure func(context.Context, scaleJob) (ScalePoint, error) // a test replaces measureInProcess
}

// scaleJob is a point to simulate, with what is left for it of the limits.
type scaleJob struct {
	Curve  string        `json:"curve"`
	Size   int           `json:"size"`
	Time   time.Duration `json:"time_ns"`
	Memory uint64        `json:"memory"`
}

// ScalePoint is what a simulation of one size has cost.
type ScalePoint struct {
	Size   int           `json:"size"`
	CPU    time.Duration `json:"cpu_ns"`
	Memory uint64        `json:"memory"`         // by which the resident memory has grown at most
	Over   string        `json:"over,omitempty"` // the limit that has ended the simulation
	simulated
}

// packetsPerS is the number of simulated packets in a second of CPU time.
func (p *ScalePoint) packetsPerS() float64 { return float64(p.Packets) / p.CPU.Seconds() }

// ScaleResult is the outcome of a ScalePlan.
type ScaleResult struct {
	Run    record.Run
	Curves []*ScaleCurve
}

// ScaleCurve has the points of a curve. Points with several samples have their medians.
type ScaleCurve struct {
	scaleCurve
	Points []ScalePoint
	// LeftOut says which points have not been measured, and why; empty if there are none.
	LeftOut string
	// CPUFit and MemoryFit are power laws of the size.
	CPUFit, MemoryFit Fit
}

// ScaleCurveNames returns the names of all curves.
func ScaleCurveNames() (names []string) {
	for _, c := range scaleCurves() {
		names = append(names, c.Name)
	}
	return names
}

// Check returns an error that names the option that is wrong.
func (p *ScalePlan) Check() error {
	for _, name := range p.Only {
		if !slices.Contains(ScaleCurveNames(), name) {
			return cli.Errorf("--only %s: give %s%s", name, cli.Choices(ScaleCurveNames()), cli.Guess(name, ScaleCurveNames()))
		}
	}
	const maxRepeat, maxMemory = 100, 1 << 44
	switch {
	case p.Time <= 0:
		return cli.Errorf("--time %v: give a positive time", p.Time)
	case p.Memory == 0 || p.Memory > maxMemory:
		return cli.Errorf("--memory: give 1 to %d", uint64(maxMemory>>30))
	case p.Repeat < 0 || p.Repeat > maxRepeat:
		return cli.Errorf("--repeat %d: give 1 to %d", p.Repeat, maxRepeat)
	}
	return nil
}

// Run measures the curves of the plan. Each may take an equal part of the time that is left.
func (p *ScalePlan) Run(ctx context.Context) (*ScaleResult, error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	var curves []scaleCurve
	for _, c := range scaleCurves() {
		if len(p.Only) == 0 || slices.Contains(p.Only, c.Name) {
			curves = append(curves, c)
		}
	}
	r := &ScaleResult{Run: NewRun()}
	r.Run.Device = record.Device{Name: "simulation", Driver: "fabrictest", Link: "simulated"}
	r.Run.Options = map[string]string{"time": p.Time.String(), "memory": cli.Bytes(p.Memory)}
	measure := p.measure
	if measure == nil {
		measure = measureInProcess
	}
	left := p.Time
	for i, c := range curves {
		m := &curveRun{ScaleCurve: ScaleCurve{scaleCurve: c}, run: &r.Run, memory: p.Memory, repeat: max(1, p.Repeat), left: left / time.Duration(len(curves)-i), measure: measure}
		left -= m.left
		m.progress = func(size int, done float64) {
			if p.Progress != nil {
				p.Progress(fmt.Sprintf("%s %d", c.Name, size), (float64(i)+done)/float64(len(curves)))
			}
		}
		if err := m.measurePoints(ctx); err != nil {
			return r, err
		}
		left += m.left
		m.fitPoints()
		r.Curves = append(r.Curves, &m.ScaleCurve)
	}
	return r, nil
}

// curveRun measures a curve.
type curveRun struct {
	ScaleCurve
	run      *record.Run // for the samples
	memory   uint64      // the limit of a point
	left     time.Duration
	repeat   int
	measure  func(context.Context, scaleJob) (ScalePoint, error)
	progress func(size int, done float64)
}

// measurePoints measures the points in the order of their sizes. It leaves out a point and those
// after it if the point before suggests that it does not fit into a limit, or if it has reached one.
func (m *curveRun) measurePoints(ctx context.Context) error {
	for i, size := range m.Sizes {
		if why := m.misfit(size); why != "" {
			m.leaveOut(size, why)
			return nil
		}
		m.progress(size, float64(i)/float64(len(m.Sizes)))
		var samples []ScalePoint
		for range m.repeat {
			p, err := m.measure(ctx, scaleJob{Curve: m.Name, Size: size, Time: m.left, Memory: m.memory})
			if err != nil {
				return fmt.Errorf("%s %d: %w", m.Name, size, err)
			}
			m.left -= p.CPU
			if p.Over != "" {
				m.leaveOut(size, p.Over)
				return nil
			}
			samples = append(samples, p)
		}
		m.addPoint(samples)
	}
	return nil
}

// misfit says why a point will probably not fit into the limits of time and memory, by the cost of
// the point before; it returns "" if it may fit.
func (m *curveRun) misfit(size int) string {
	if len(m.Points) == 0 {
		return ""
	}
	last := m.Points[len(m.Points)-1]
	factor := float64(size) / float64(last.Size)
	const exponent = 1.2 // more than those of all curves, so that a point that starts mostly ends
	took := time.Duration(float64(m.repeat) * float64(last.CPU) * math.Pow(factor, exponent))
	if took > m.left {
		return fmt.Sprintf("would take about %s, and %s of --time are left", cli.Duration(took), cli.Duration(max(0, m.left)))
	}
	if bytes := uint64(float64(last.Memory) * factor); bytes > m.memory {
		return fmt.Sprintf("would take about %s, and --memory is %s", cli.Bytes(bytes), cli.Bytes(m.memory))
	}
	return ""
}

// leaveOut records that the points from a size on are not measured, and why.
func (m *curveRun) leaveOut(size int, why string) {
	m.LeftOut = fmt.Sprintf("%d %s", size, why)
	if size != m.Sizes[len(m.Sizes)-1] {
		m.LeftOut = fmt.Sprintf("%d and more: %s", size, m.LeftOut)
	}
	m.run.Options["left_out_"+m.Name] = m.LeftOut
}

// addPoint adds a point with the medians of its samples, and the samples to the recorded run.
func (m *curveRun) addPoint(samples []ScalePoint) {
	for _, p := range samples {
		at := fmt.Sprintf("/%s=%d", m.Name, p.Size)
		m.run.Add("scale_cpu"+at, record.Seconds, p.CPU.Seconds())
		m.run.Add("scale_memory"+at, record.Size, float64(p.Memory))
		m.run.Add("scale_packets"+at, record.Messages, p.packetsPerS())
	}
	slices.SortFunc(samples, func(a, b ScalePoint) int { return cmp.Compare(a.Memory, b.Memory) })
	memory := samples[len(samples)/2].Memory
	slices.SortFunc(samples, func(a, b ScalePoint) int { return cmp.Compare(a.CPU, b.CPU) })
	median := samples[len(samples)/2]
	median.Memory = memory
	m.Points = append(m.Points, median)
}

// fitPoints fits power laws to the points, and records their exponents.
func (m *curveRun) fitPoints() {
	n := len(m.Points)
	sizes, cpu, memory := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, p := range m.Points {
		sizes[i], cpu[i], memory[i] = float64(p.Size), p.CPU.Seconds(), float64(p.Memory)
	}
	m.CPUFit, m.MemoryFit = FitPowerLaw(sizes, cpu), FitPowerLaw(sizes, memory)
	for name, f := range map[string]Fit{"cpu": m.CPUFit, "memory": m.MemoryFit} {
		if f.Points >= minFitPoints {
			m.run.Options["exponent_"+m.Name+"_"+name] = f.String()
		}
	}
}

// measureInProcess simulates a point in a new process of this program, whose memory no earlier point
// has touched.
func measureInProcess(ctx context.Context, j scaleJob) (p ScalePoint, err error) {
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	text, err := json.Marshal(j)
	if err != nil {
		return p, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self, ScaleArgs...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &stdout, &stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return p, fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case err != nil:
		return p, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	err = json.Unmarshal(stdout.Bytes(), &p)
	return p, err
}
