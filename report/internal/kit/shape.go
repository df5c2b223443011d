package kit

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fabrictest/fabrictest/internal/textfmt"
)

// Charts are drawn in a box of Width by Height units that the page scales without scaling
// line widths; texts are outside. With MaxSteps equal steps, all coordinates are integers.
const (
	Width  = 4 * MaxSteps
	Height = 1000
)

// X returns the position of a time on the axis, in units of Width.
func (g Grid) X(t time.Duration) float64 {
	x := float64(t) / float64(g.End) * Width
	return math.Round(10*min(Width, max(0, x))) / 10
}

// Path returns a step line as SVG path data, for a scale up to top.
func (g Grid) Path(values []float64, top float64) string {
	b := make([]byte, 0, 8*len(values))
	b = append(b, 'M', '0', ' ')
	last := -1
	for i, v := range values {
		y := level(v, top)
		switch {
		case i == 0:
			b = strconv.AppendInt(b, int64(y), 10)
		case y != last:
			b = append(b, 'V')
			b = strconv.AppendInt(b, int64(y), 10)
		}
		last = y
		// Merge equal steps into one line.
		if i+1 < len(values) && level(values[i+1], top) == y {
			continue
		}
		b = append(b, 'H')
		b = strconv.AppendFloat(b, g.X(g.Edges[i+1]), 'f', -1, 64)
	}
	return string(b)
}

// Area returns a step line closed at the bottom, for filling.
func (g Grid) Area(values []float64, top float64) string {
	bottom := strconv.Itoa(Height)
	return "M0 " + bottom + strings.Replace(g.Path(values, top), "M0 ", "V", 1) + "V" + bottom
}

// Between returns the area between two step lines.
func (g Grid) Between(low, high []float64, top float64) string {
	if len(low) == 0 {
		return ""
	}
	b := []byte(g.Path(high, top))
	for i := len(low) - 1; i >= 0; i-- {
		b = append(b, 'V')
		b = strconv.AppendInt(b, int64(level(low[i], top)), 10)
		b = append(b, 'H')
		b = strconv.AppendFloat(b, g.X(g.Edges[i]), 'f', -1, 64)
	}
	return string(append(b, 'Z'))
}

// level returns the distance of a value from the top.
func level(v, top float64) int {
	if top <= 0 {
		return Height
	}
	return int(math.Round(Height * (1 - min(1, max(0, v/top)))))
}

// Top returns the end of the scale: a round number that no value exceeds, 0 if all are 0.
func Top(all ...[]float64) float64 {
	most := 0.0
	for _, v := range all {
		if len(v) > 0 {
			most = max(most, slices.Max(v))
		}
	}
	if most <= 0 || math.IsInf(most, 0) || math.IsNaN(most) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, m := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if most <= m*unit*1.0001 {
			return m * unit
		}
	}
	return 10 * unit
}

// Tick is a tick of the time axis.
type Tick struct {
	X    float64 // of Width
	Text string
}

// Ticks returns the marks of the time axis, four to seven, at multiples of a round number.
func (g Grid) Ticks() []Tick {
	step := Top([]float64{float64(g.End) / 6})
	if step < 1 {
		step = 1
	}
	var ticks []Tick
	for t := 0.0; t <= float64(g.End)*1.0001; t += step {
		text := "0"
		if t > 0 {
			text = textfmt.Duration(time.Duration(math.Round(t)))
		}
		ticks = append(ticks, Tick{g.X(time.Duration(t)), text})
	}
	return ticks
}
