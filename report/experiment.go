package report

// Experiment compares variants of a workload on a simulated platform with published results.
type Experiment struct {
	Platform string `json:"platform"` // name of the platform
	Title    string `json:"title"`    // its hosts and NICs in one line
	// Parameters are those of the platform.
	Parameters []Parameter `json:"parameters"`
	Ranks      int         `json:"ranks"` // the most ranks of a run
	Runs       int         `json:"runs"`  // simulations: of each variant at each x
	Figures    []Figure    `json:"figures"`
	Charts     []Chart     `json:"charts,omitempty"`
}

// Parameter is a parameter of a platform.
type Parameter struct {
	Name   string  `json:"name"` // with the unit at its end
	Value  float64 `json:"value"`
	Source string  `json:"source"` // where it is published, or "assumed" and why
}

// Figure is a published result and the value of the simulation.
type Figure struct {
	Row       string `json:"row"`       // its number in a list of published results
	Text      string `json:"text"`      // what it says
	Published string `json:"published"` // the published value in words
	Where     string `json:"where"`     // publication and section
	// Ours is the value of the simulation; none if, for example, two curves do not cross.
	Ours *float64 `json:"ours,omitempty"`
	Unit string   `json:"unit"`
	// Agrees reports whether Ours has the published relation to the published value.
	Agrees bool `json:"agrees"`
	// Reason explains a known difference.
	Reason string `json:"reason,omitempty"`
}

// OK reports whether the figure agrees, or differs as recorded.
func (f *Figure) OK() bool { return f.Agrees == (f.Reason == "") }

// Agreeing returns the number of figures that agree with the published results.
func (e *Experiment) Agreeing() (n int) {
	for i := range e.Figures {
		if e.Figures[i].Agrees {
			n++
		}
	}
	return n
}

// Chart has a figure of the variants over the x axis.
type Chart struct {
	Title string      `json:"title"`
	Unit  string      `json:"unit"`
	XName string      `json:"x_name"` // bytes, ranks, compute or iterations
	XUnit string      `json:"x_unit"`
	Lines []ChartLine `json:"lines"`
	// Published are the published values of the figure.
	Published []ChartMark `json:"published,omitempty"`
}

// ChartLine is a variant, or the comparison of two.
type ChartLine struct {
	Name   string       `json:"name"`
	Points []ChartPoint `json:"points"`
}

// ChartPoint is a point of a line.
type ChartPoint struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// ChartMark is a published value.
type ChartMark struct {
	Text string `json:"text"` // the row and the value in words
	Line int    `json:"line"` // index of the line that it belongs to
	// X is where on the axis; none if the value is the largest or smallest of all.
	X *float64 `json:"x,omitempty"`
	// Low and High are equal for a single value.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}
