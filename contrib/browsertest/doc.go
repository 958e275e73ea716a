// Package browsertest opens the console of a real group in a real browser, headless Chromium.
// It is a module of its own, so that no importer of conclave links what drives the browser.
// Its tests skip where no Chromium is installed.
package browsertest
