package ranks

import (
	"fmt"
	"html/template"

	"github.com/fabrictest/fabrictest/internal/textfmt"
	"github.com/fabrictest/fabrictest/report/internal/kit"
)

// drawByRank draws the memory of each rank by kind. With many ranks, several share a column,
// which shows the largest of them; share is their number.
func drawByRank(all []Values) (drawing template.HTML, share int) {
	const maxColumns = 128
	if len(all) < 2 {
		return "", 0
	}
	share = (len(all) + maxColumns - 1) / maxColumns
	var columns []kit.Column
	for at := 0; at < len(all); at += share {
		group := all[at:min(at+share, len(all))]
		k, most := kit.Column{}, -1
		for i, s := range group {
			if s == nil {
				continue
			}
			if kinds, n := memoryOf(s); int(n) > most {
				most = int(n)
				k = kit.Column{Title: fmt.Sprintf("rank %d: %s", at+i, textfmt.Bytes(n))}
				for kind, m := range kinds {
					k.Parts = append(k.Parts, kit.Segment{Class: kindClass(kind), Value: float64(m)})
				}
			}
		}
		columns = append(columns, k)
	}
	for i := range columns {
		if every := (len(columns) + 15) / 16; i%every == 0 {
			columns[i].Label = fmt.Sprint(i * share)
		}
	}
	return kit.ColumnChart{Width: 920, Height: 180, Left: 62, Label: "memory of each rank", Ticks: 4}.Draw(columns), share
}
