package browsertest

import (
	"bytes"
	"cmp"
	"flag"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/conclave-go/conclave/conclavehttp"
)

var screenshots = flag.String("screenshots", "", "`folder` for the screenshots of docs/OPERATIONS.md; none are taken without it")

// TestScreenshots takes the screenshots of docs/OPERATIONS.md:
//
//	go -C contrib/browsertest test -run Screenshots -args -screenshots ../../docs
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		t.Skip("no -screenshots folder")
	}
	certificates := func() (time.Time, time.Time) {
		return time.Now().Add(80 * 24 * time.Hour), time.Now().Add(9 * 365 * 24 * time.Hour)
	}
	s := stage(t, &conclavehttp.ConsoleOptions{ShowKeys: true, Certificates: certificates})
	s.furnish()
	s.invoiced(start(t))
	s.work()
	for _, c := range []struct {
		file, path, scheme string
		width, height      int64
		scale              float64
		mobile             bool
		top                string // scrolled to
	}{
		{"console-light.png", "?lock=invoices%2F2026-11", "light", 1300, 1230, 1, false, ""},
		{"console-dark.png", "", "dark", 400, 860, 1.5, true, "nav"},
		{"console-keys-dark.png", "?show=keys&prefix=config%2F", "dark", 1300, 1290, 1, false, ""},
		{"console-holds-light.png", "?of=" + s.client.String(), "light", 400, 860, 1.5, true, "#cycles h2"},
	} {
		b := start(t)
		b.colours(c.scheme)
		b.do(
			chromedp.EmulateViewport(c.width, c.height, chromedp.EmulateScale(c.scale)),
			chromedp.Navigate(s.url+c.path),
		)
		b.awaitText("#live", "live")
		b.awaitText("#cycles", "Possible deadlocks")
		// 20 seconds of the chart, at one point a second.
		b.await(`(document.querySelector('path.line:not(.high)').getAttribute('d').match(/L/g) ?? []).length > 15`)
		if c.top != "" {
			b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("` + c.top + `").parentElement.scrollIntoView()`))
		}
		image, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		must(t, err)
		must(t, os.WriteFile(filepath.Join(*screenshots, c.file), small(t, image), 0o644))
	}
}

// small encodes an image in its 256 most frequent colours, which is a third of the size.
func small(t *testing.T, screenshot []byte) []byte {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(screenshot))
	must(t, err)
	bounds := decoded.Bounds()
	counts := make(map[color.Color]int)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[decoded.At(x, y)]++
		}
	}
	frequent := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	paletted := image.NewPaletted(bounds, frequent[:min(256, len(frequent))])
	nearest := make(map[color.Color]uint8)
	for c := range counts {
		nearest[c] = uint8(paletted.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			paletted.SetColorIndex(x, y, nearest[decoded.At(x, y)])
		}
	}
	var b bytes.Buffer
	must(t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, paletted))
	return b.Bytes()
}
