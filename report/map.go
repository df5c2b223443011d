package report

import (
	_ "embed"
	"fmt"
	"io"

	"github.com/fabrictest/fabrictest/report/internal/kit"
)

var (
	//go:embed page/map.gohtml
	mapText string
	//go:embed page/map.css
	mapCSS string

	mapLayout = kit.NewLayout(pageCSS+mapCSS, "", nil, mapText)
)

// Map is a page of maps: tables whose cells name the best of several alternatives.
type Map struct {
	Headline, Note string
	Facts          [][2]string // names and values
	Groups         []MapGroup
}

// MapGroup is a map.
type MapGroup struct {
	Title   string
	Keys    []string // the alternatives, each with its colour
	Columns []string
	Rows    []MapRow
}

// MapRow is a row of a map.
type MapRow struct {
	Name  string
	Cells []MapCell // by column
}

// MapCell is a cell of a map; without a name it is empty.
type MapCell struct {
	Name    string
	Key     int     // index of the alternative in MapGroup.Keys
	Gain    float64 // in per cent, over what is usual; 0 for the usual one
	Details string  // shown beside the pointer
}

// mapColours is the number of colours of alternatives.
const mapColours = 8

// Class returns the style of the cell: its colour, which is stronger with a larger gain.
func (c MapCell) Class() string {
	strength := 0
	for _, least := range []float64{0, 15, 35} {
		if c.Gain > least {
			strength++
		}
	}
	return fmt.Sprintf("m%d s%d", c.Key%mapColours, strength)
}

// GainText returns the gain; empty if there is none.
func (c MapCell) GainText() string {
	if c.Gain <= 0 {
		return ""
	}
	return fmt.Sprintf("−%.0f %%", c.Gain)
}

// mapPage is the template's data for maps.
type mapPage struct {
	kit.Page
	Groups []MapGroup
	Note   string
}

// WriteMap writes maps as one self-contained page.
func WriteMap(w io.Writer, m *Map) error {
	p := &mapPage{kit.Page{About: "map", Headline: m.Headline, Title: "fabrictest: " + m.Headline}, m.Groups, m.Note}
	for _, f := range m.Facts {
		if f[0] == "Command" {
			p.Page.Facts.AddCommand(f[0], f[1])
		} else {
			p.Page.Facts.Add(f[0], f[1])
		}
	}
	return mapLayout.Write(w, p, "")
}
