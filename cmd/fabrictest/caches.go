package main

import (
	"github.com/fabrictest/fabrictest/report"
	"github.com/fabrictest/fabrictest/report/conform"
	"github.com/fabrictest/fabrictest/report/ranks"
)

// The runs in the user's cache, by kind.
var (
	runs        = report.Cache{Folder: "runs", Result: report.ResultFile}
	conformRuns = report.Cache{Folder: "conform", Result: conform.ResultFile}
	rankRuns    = report.Cache{Folder: "ranks", Result: ranks.ResultFile}
)
