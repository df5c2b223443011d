package report

import "github.com/fabrictest/fabrictest/report/internal/visible"

// Visible is the text with everything spelled out that would control a terminal
// or hide in a page, in one line.
func Visible(s string) string { return visible.Line(s) }
